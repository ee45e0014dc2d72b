// A client with grpc-go.
//
//	client WAY SOCKET CALLS
//
// WAY is `localhost`, as kubelet dials since Kubernetes 1.31, or `path`, as it and crictl did before. See ../calls.py for CALLS and what is printed.
package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// Messages as they came.
type bytesCodec struct{}

func (bytesCodec) Name() string                        { return "proto" }
func (bytesCodec) Marshal(message any) ([]byte, error) { return message.([]byte), nil }
func (bytesCodec) Unmarshal(bytes []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), bytes...)
	return nil
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(way, socket, calls string) error {
	connection, err := dial(way, socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	for _, call := range strings.Fields(calls) {
		method, request, _ := strings.Cut(call, "=")
		message, err := hex.DecodeString(request)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var answer []byte
		err = connection.Invoke(ctx, method, message, &answer, grpc.ForceCodec(bytesCodec{}))
		cancel()
		text := status.Convert(err).Message()
		fmt.Println(method, int(status.Code(err)), hex.EncodeToString(answer), base64.StdEncoding.EncodeToString([]byte(text)))
	}
	return nil
}

func dial(way, socket string) (*grpc.ClientConn, error) {
	credentials := grpc.WithTransportCredentials(insecure.NewCredentials())
	if way == "localhost" {
		return grpc.NewClient("unix:"+socket, credentials)
	}
	dialer := func(ctx context.Context, address string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", address)
	}
	return grpc.NewClient("passthrough:///"+socket, credentials, grpc.WithContextDialer(dialer))
}

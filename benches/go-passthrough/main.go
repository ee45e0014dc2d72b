// The least that a CRI proxy in Go can be: every call is forwarded as undecoded messages, with its metadata and its status. What bayplan's
// proxy is compared with.
//
//	go-passthrough SOCKET RUNTIME-SOCKET
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
)

const messageMax = 16 << 20

// A message as it came.
type frame struct{ bytes []byte }

type codec struct{}

func (codec) Name() string                        { return "proto" }
func (codec) Marshal(message any) ([]byte, error) { return message.(*frame).bytes, nil }
func (codec) Unmarshal(bytes []byte, message any) error {
	message.(*frame).bytes = append([]byte(nil), bytes...)
	return nil
}

var _ encoding.Codec = codec{}

func main() {
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(socket, runtimeSocket string) error {
	upstream, err := grpc.NewClient("unix:"+runtimeSocket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(messageMax), grpc.MaxCallSendMsgSize(messageMax)))
	if err != nil {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	forward := func(_ any, downstream grpc.ServerStream) error { return forward(upstream, downstream) }
	server := grpc.NewServer(grpc.ForceServerCodec(codec{}), grpc.UnknownServiceHandler(forward),
		grpc.MaxRecvMsgSize(messageMax), grpc.MaxSendMsgSize(messageMax))
	return server.Serve(listener)
}

func forward(upstream *grpc.ClientConn, downstream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(downstream)
	ctx, cancel := context.WithCancel(downstream.Context())
	defer cancel()
	if headers, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, headers)
	}
	stream, err := upstream.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		for {
			var message frame
			if err := downstream.RecvMsg(&message); err != nil {
				stream.CloseSend()
				return
			}
			if err := stream.SendMsg(&message); err != nil {
				return
			}
		}
	}()
	if headers, err := stream.Header(); err == nil {
		downstream.SendHeader(headers)
	}
	for {
		var message frame
		if err := stream.RecvMsg(&message); err == io.EOF {
			downstream.SetTrailer(stream.Trailer())
			return nil
		} else if err != nil {
			downstream.SetTrailer(stream.Trailer())
			return err
		}
		if err := downstream.SendMsg(&message); err != nil {
			return err
		}
	}
}

"""A client with grpcio, gRPC's C core: `client.py SOCKET CALLS`. See ../calls.py for CALLS and what is printed."""

import base64
import sys

import grpc


def main(socket, calls):
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        for call in calls.split():
            method, request = call.split("=")
            invoke = channel.unary_unary(method)
            try:
                code, answer, text = 0, invoke(bytes.fromhex(request), timeout=20), ""
            except grpc.RpcError as failed:
                code, answer, text = failed.code().value[0], b"", failed.details()
            print(method, code, answer.hex(), base64.b64encode(text.encode()).decode())


main(*sys.argv[1:])

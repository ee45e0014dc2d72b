import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.concurrent.TimeUnit;

/**
 * A client with grpc-java, on a Unix socket by netty's epoll.
 *
 * <p>{@code java Client.java WAY SOCKET CALLS}. WAY is {@code address}, a channel to a socket address, or {@code target}, a channel to the name {@code unix:SOCKET}.
 * See ../calls.py for CALLS and what is printed.
 */
public final class Client {
    public static void main(String[] args) throws Exception {
        EventLoopGroup group = new EpollEventLoopGroup(1);
        ManagedChannel channel = channel(args[0], args[1], group);
        try {
            for (String call : args[2].split(" ")) {
                int equals = call.indexOf('=');
                invoke(channel, call.substring(0, equals), HexFormat.of().parseHex(call.substring(equals + 1)));
            }
        } finally {
            channel.shutdownNow().awaitTermination(20, TimeUnit.SECONDS);
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).await();
        }
    }

    private static ManagedChannel channel(String way, String socket, EventLoopGroup group) {
        if (way.equals("target")) {
            return Grpc.newChannelBuilder("unix:" + socket, InsecureChannelCredentials.create()).build();
        }
        return NettyChannelBuilder.forAddress(new DomainSocketAddress(socket))
                .eventLoopGroup(group)
                .channelType(EpollDomainSocketChannel.class)
                .usePlaintext()
                .build();
    }

    private static void invoke(ManagedChannel channel, String name, byte[] request) {
        MethodDescriptor<byte[], byte[]> method =
                MethodDescriptor.<byte[], byte[]>newBuilder()
                        .setType(MethodDescriptor.MethodType.UNARY)
                        .setFullMethodName(name.substring(1))
                        .setRequestMarshaller(new Bytes())
                        .setResponseMarshaller(new Bytes())
                        .build();
        CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(20, TimeUnit.SECONDS);
        byte[] answer = new byte[0];
        Status status = Status.OK;
        try {
            answer = ClientCalls.blockingUnaryCall(channel, method, options, request);
        } catch (StatusRuntimeException failed) {
            status = failed.getStatus();
        }
        String text = status.getDescription() == null ? "" : status.getDescription();
        String encoded = Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
        System.out.printf("%s %d %s %s%n", name, status.getCode().value(), HexFormat.of().formatHex(answer), encoded);
    }

    /** Messages as they came. */
    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] message) {
            return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream message) {
            try {
                return message.readAllBytes();
            } catch (IOException failed) {
                throw new UncheckedIOException(failed);
            }
        }
    }
}

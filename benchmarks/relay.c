// The least that a hop costs: epoll_wait, recv and send of every piece, and nothing else.
//
//     relay PORT UPSTREAM
//
// Listens on 127.0.0.1:PORT and passes bytes to and from 127.0.0.1:UPSTREAM, unread. What it takes
// is nearly all the kernel's: system calls, and the loopback's way through TCP. For measurements: a
// peer that does not read is not waited for.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MAX_FD 4096

static int peer_of[MAX_FD];
static char buffer[65536];

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static void join(int epoll, int client, int port) {
    struct sockaddr_in address = loopback(port);
    int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);
    if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address)) exit(1);
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    peer_of[client] = server;
    peer_of[server] = client;
    watch(epoll, client);
    watch(epoll, server);
}

static void pass_on(int fd) {
    ssize_t size;
    if (peer_of[fd] < 0) return;  // closed with its peer, in the same turn
    size = recv(fd, buffer, sizeof buffer, 0);
    if (size > 0) {
        if (send(peer_of[fd], buffer, size, MSG_NOSIGNAL) != size) exit(1);
    } else {
        int peer = peer_of[fd];
        peer_of[fd] = peer_of[peer] = -1;
        close(fd);
        close(peer);
    }
}

int main(int argc, char **argv) {
    struct epoll_event events[256];
    struct sockaddr_in address;
    int one = 1, epoll = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM, 0);
    if (argc != 3) return 2;
    address = loopback(atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128)) return 1;
    watch(epoll, listener);
    for (;;) {
        int number = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < number; i++) {
            if (events[i].data.fd == listener)
                join(epoll, accept(listener, NULL, NULL), atoi(argv[2]));
            else
                pass_on(events[i].data.fd);
        }
    }
}

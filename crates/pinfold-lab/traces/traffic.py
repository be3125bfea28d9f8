#!/usr/bin/env python3
"""Programs whose traffic is recorded: sessions of sockets, a mail spool, a bulk sender, a chat server.

Each is started by record.sh and runs on the loopback alone.
"""

import ftplib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

HOST = "127.0.0.1"


def listener():
    one = socket.socket()
    one.bind((HOST, 0))
    one.listen(16)
    return one, one.getsockname()[1]


def exactly(sock, count):
    """Takes so many bytes from a connection, as a terminal's program does: in whatever pieces they come."""
    got = 0
    while got < count:
        piece = sock.recv(4096)
        if not piece:
            return
        got += len(piece)


def typing(sock, seed, is_client):
    """A remote shell: each key is echoed, each line has an answer of one to forty lines of a screen."""
    keys = random.Random(seed)
    for _ in range(12):
        for _ in range(keys.randrange(2, 12)):
            if is_client:
                sock.sendall(b"k")
                exactly(sock, 1)
            else:
                exactly(sock, 1)
                sock.sendall(b"k")
        answer = 80 * keys.randrange(1, 40)
        if is_client:
            sock.sendall(b"\r\n")
            exactly(sock, answer)
        else:
            exactly(sock, 2)
            sock.sendall(bytes(answer))


def drawing(sock, seed, is_client):
    """A window system's client: requests in batches, and events of 32 bytes each."""
    sizes = random.Random(seed)
    for _ in range(80):
        batch, events = 4 * sizes.randrange(2, 400), 32 * sizes.randrange(1, 4)
        if is_client:
            sock.sendall(bytes(batch))
            exactly(sock, events)
        else:
            exactly(sock, batch)
            sock.sendall(bytes(events))


def ftp_server(accepting):
    """As much of RFC 959 as ftplib asks for to store and to fetch a file."""
    control, _ = accepting.accept()
    lines = control.makefile("rw", newline="\r\n")

    def say(text):
        lines.write(text + "\n")
        lines.flush()

    say("220 ready")
    data = None
    while True:
        word = lines.readline().split(" ")[0].strip().upper()
        if word in ("USER", "TYPE"):
            say("230 well" if word == "USER" else "200 well")
        elif word in ("EPSV", "PASV"):
            data, port = listener()
            high, low = divmod(port, 256)
            say(f"229 mine (|||{port}|)" if word == "EPSV" else f"227 mine (127,0,0,1,{high},{low})")
        elif word in ("STOR", "RETR"):
            say("150 begins")
            sock, _ = data.accept()
            if word == "STOR":
                while sock.recv(8192):
                    pass
            else:
                for _ in range(40):
                    sock.sendall(bytes(8192))
            sock.close()
            data.close()
            say("226 done")
        else:
            say("221 over")
            return


def ftp_client(port):
    with ftplib.FTP() as ftp, open("/dev/zero", "rb") as zeros:
        ftp.connect(HOST, port)
        ftp.sendcmd("USER anonymous")
        sizes = []
        ftp.retrbinary("RETR file", lambda piece: sizes.append(len(piece)))
        assert sum(sizes) == 40 * 8192

        class Short:
            left = 200_000

            def read(self, count):
                piece = zeros.read(min(count, self.left))
                self.left -= len(piece)
                return piece

        ftp.storbinary("STOR file", Short())


def forked(work, *words):
    pid = os.fork()
    if pid:
        return pid
    try:
        work(*words)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def sessions():
    """Sixteen sessions at once, a process at each end: four of each kind."""
    pids = []

    def pair(work, seed):
        accepting, port = listener()

        def serve():
            sock, _ = accepting.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            work(sock, seed, False)

        def call():
            sock = socket.create_connection((HOST, port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            work(sock, seed, True)

        pids.extend([forked(serve), forked(call)])
        accepting.close()

    place = tempfile.mkdtemp()
    for at in range(12):
        with open(f"{place}/{at}", "wb") as file:
            file.write(bytes(1500 * (at + 1) ** 2))
    for seed in range(4):
        pair(typing, seed)
        pair(drawing, 100 + seed)
        accepting, port = listener()
        pids.extend([forked(ftp_server, accepting), forked(ftp_client, port)])
        accepting.close()
        with socket.socket() as free:
            free.bind((HOST, 0))
            port = free.getsockname()[1]
        words = [sys.executable, "-m", "http.server", str(port), "--bind", HOST, "--directory", place]
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        urls = [f"http://{HOST}:{port}/{at}" for at in range(12)]
        fetch = ["curl", "-s", "--retry", "9", "--retry-connrefused", "--retry-delay", "1", *urls]
        pids.append((server, subprocess.Popen(fetch, stdout=subprocess.DEVNULL)))
    for one in pids:
        if isinstance(one, tuple):
            assert one[1].wait() == 0
            one[0].terminate()
            one[0].wait()
        else:
            assert os.waitpid(one, 0)[1] == 0
    shutil.rmtree(place)


def spool():
    """A mail spool: files of 0.5 to 10 KB are made, read, added to and removed."""
    rolls, place, names = random.Random(5), tempfile.mkdtemp(), []
    for at in range(100):
        names.append(f"{place}/{at}")
        with open(names[-1], "wb", buffering=0) as file:
            file.write(rolls.randbytes(rolls.randrange(500, 10_000)))
    for at in range(300):
        name = rolls.choice(names)
        if rolls.random() < 0.5:
            with open(name, "rb", buffering=0) as file:
                while file.read(4096):
                    pass
        else:
            with open(name, "ab", buffering=0) as file:
                file.write(rolls.randbytes(rolls.randrange(500, 4096)))
        if at % 3 == 0:
            os.unlink(name)
            with open(name, "wb", buffering=0) as file:
                file.write(rolls.randbytes(rolls.randrange(500, 10_000)))
    shutil.rmtree(place)


def bulk():
    """A bulk sender: 16 KiB messages in one direction, from a ring of buffers, into one buffer."""
    accepting, port = listener()

    def serve():
        sock, _ = accepting.accept()
        into = bytearray(16384)
        while sock.recv_into(into):
            pass

    pid = forked(serve)
    with socket.create_connection((HOST, port)) as sock:
        ring = [bytearray(16384) for _ in range(8)]
        for at in range(400):
            sock.sendall(ring[at % 8])
    assert os.waitpid(pid, 0)[1] == 0


def chat():
    """A chat server with a room of eight: each message of a client goes to all of them."""
    accepting, port = listener()

    def client(seed):
        rolls = random.Random(seed)
        sock = socket.create_connection((HOST, port))
        for _ in range(6):
            sock.sendall(bytes(rolls.randrange(20, 400)))
            sock.recv(4096)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(4096):
            pass

    pids = [forked(client, seed) for seed in range(8)]
    room = [accepting.accept()[0] for _ in range(8)]

    def serve(own):
        while True:
            text = own.recv(4096)
            if not text:
                return
            for other in room:
                other.sendall(text)

    threads = [threading.Thread(target=serve, args=(own,)) for own in room]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for one in room:
        one.close()
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0


if __name__ == "__main__":
    {"sessions": sessions, "spool": spool, "bulk": bulk, "chat": chat}[sys.argv[1]]()

"""The socket of a page that this machine serves, and the server that answers there until it is interrupted."""

import os
import socket
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from usvit.errors import UsvitError

HERE = ("127.0.0.1", "localhost", "::1")
"""Names of this machine that lead to no network."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address.

    Args:
        host: name or address of this machine.
        port: 0 for any free one.

    Raises:
        UsvitError: The port is in use, or the address is not one of this machine.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        if os.name == "posix":  # elsewhere, it lets two processes listen at one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        raise UsvitError(
            f"The page cannot be served at {host}:{port}: {os.strerror(error.errno or 0)}. Choose another with --port "
            "or --host."
        ) from error
    return listening


def origin_of(host: str, listening: socket.socket, *, https: bool = False) -> str:
    """Return scheme, host and port, as a browser writes them."""
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if https else 'http'}://{name}:{listening.getsockname()[1]}"


def server_of(app: ASGIApp, *, certificate: Path | None = None, private_key: Path | None = None) -> uvicorn.Server:
    """Return a server, whose ``run(sockets=[...])`` answers until SIGINT or SIGTERM.

    Raises:
        UsvitError: The certificate or its key cannot be used.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=512,
        timeout_graceful_shutdown=3,
        ssl_certfile=certificate,
        ssl_keyfile=private_key,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise UsvitError(f"The certificate {certificate} and the key {private_key} cannot be used: {error}.") from error
    return uvicorn.Server(config)

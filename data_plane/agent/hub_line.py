"""Delivers heartbeats to the hub, through the tunnel and by no other way."""

import socket
from functools import partial

from data_plane.agent.service import Send
from data_plane.documents import strict
from data_plane.documents.agent_config import Config
from data_plane.documents.heartbeat import LINE_BYTES_MAX, Answer, Delivery, encode, read_answer

SECONDS = 10


def sender(config: Config) -> Send:
    return partial(deliver, config)


def deliver(config: Config, delivery: Delivery) -> Answer:
    """Raises OSError when there is no answer within SECONDS, strict.Malformed when it is none.

    The connection comes from the machine's own address in the tunnel. Without the tunnel nobody has that address, and
    nothing is sent: the hub's address alone would lead to the provider's network, and the credential with it.
    """
    with socket.create_connection((config.hub, config.port), SECONDS, (config.own, 0)) as line:
        line.sendall(encode(delivery))
        with line.makefile("rb") as answers:
            answer = answers.readline(LINE_BYTES_MAX)
    if not answer.endswith(b"\n"):
        raise strict.Malformed("the hub's answer is cut off")
    return read_answer(answer)

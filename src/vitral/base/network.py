"""The Hugging Face hub's client, made to give up early and quietly: it tries for half a minute, and logs each attempt."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

PATIENCE = 5.0
"""Seconds to wait for a first answer of the network."""
_LOGGERS = ("huggingface_hub", "datasets")


@contextlib.contextmanager
def asking_the_hub() -> Iterator[None]:
    """Inside, the client asks only its cache when there is no network, and what goes wrong is an exception, not lines on the screen."""
    from huggingface_hub import constants

    # The library of data sets keeps a copy of its own.
    settings: list[Any] = [constants, *filter(None, [sys.modules.get("datasets.config")])]
    before = [setting.HF_HUB_OFFLINE for setting in settings]
    cut_off = not any(before) and not reachable(constants.ENDPOINT)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for setting, offline in zip(settings, before, strict=True):
        setting.HF_HUB_OFFLINE = offline or cut_off
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for setting, offline in zip(settings, before, strict=True):
            setting.HF_HUB_OFFLINE = offline
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def reachable(address: str) -> bool:
    url = urllib.parse.urlparse(address)
    if urllib.request.getproxies() or not url.hostname:
        return True  # behind a proxy only the client itself can tell
    try:
        with socket.create_connection((url.hostname, url.port or 443), timeout=PATIENCE):
            return True
    except OSError:
        return False

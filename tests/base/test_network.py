from __future__ import annotations

import logging
import time
import urllib.request

import pytest

from vitral.base import network

constants = pytest.importorskip("huggingface_hub.constants")


def test_no_network_is_noticed_at_once() -> None:
    began = time.monotonic()
    assert network.reachable("https://127.0.0.1:9") is False or urllib.request.getproxies()
    assert time.monotonic() - began < network.PATIENCE + 1


@pytest.mark.parametrize("there", [True, False])
def test_without_a_network_only_the_cache_is_asked_and_nothing_is_logged(
    there: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(network, "reachable", lambda address: there)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    logger = logging.getLogger("huggingface_hub.utils._http")
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "propagate", True)  # where caplog listens
    with pytest.raises(ConnectionError), network.asking_the_hub():
        assert constants.HF_HUB_OFFLINE is not there
        logger.warning("Retrying in 1s [Retry 1/5].")
        raise ConnectionError
    assert not caplog.records and constants.HF_HUB_OFFLINE is False
    logger.warning("heard again")
    assert [record.message for record in caplog.records] == ["heard again"]

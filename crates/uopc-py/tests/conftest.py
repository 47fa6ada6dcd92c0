"""What all Python tests share: hypothesis without time limits or a database, and a fixed seed."""

import os
import pathlib

import hypothesis
import pytest

import uopc

hypothesis.settings.register_profile(
    "uopc",
    deadline=None,
    database=None,
    derandomize=True,
    max_examples=500 if os.environ.get("UOPC_DEEP") else 50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("uopc")

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _seed():
    """Each test draws the same random numbers, whatever ran before it."""
    uopc.Tensor.manual_seed(0)


@pytest.fixture
def shared():
    """The folder of shared files beside the checkout; without it the test is skipped.

    With UOPC_SHARED=required its absence is a failure.
    """
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        if os.environ.get("UOPC_SHARED") == "required":
            pytest.fail(f"{folder} is missing, and UOPC_SHARED=required asks for it")
        pytest.skip(f"{folder} is not there")
    return folder

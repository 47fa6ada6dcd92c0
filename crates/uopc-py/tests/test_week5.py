"""The chapter's own test file, unmodified, where it lies beside the checkout."""

import subprocess
import sys


def test_the_chapters_tests_pass(shared):
    tests = shared / "spec" / "test_week5.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout

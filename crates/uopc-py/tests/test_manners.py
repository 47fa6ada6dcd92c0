"""What a guest in someone's process owes: threads, forks, signals, warnings, and errors that name
the line."""

import inspect
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import uopc
from uopc import Tensor, nn

unix = pytest.mark.skipif(os.name != "posix", reason="forks and signals are those of Unix")


def run(code, tmp_path, timeout=300, **env):
    """What a fresh process prints that runs the code with a kernel cache of its own."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(code))
    environment = {**os.environ, "UOPC_CACHE_DIR": str(tmp_path / "kernels"), **env}
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def here():
    """The caller's line as errors write it."""
    frame = inspect.currentframe().f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# ---- errors ----


def test_an_error_names_the_line_that_called():
    a, b = Tensor([1.0, 2.0]), Tensor([1.0, 2.0, 3.0])
    with pytest.raises(ValueError) as error:
        line = here(); a + b
    assert line in str(error.value)
    assert "(2,)" in str(error.value) and "(3,)" in str(error.value)


def test_an_error_inside_a_layer_names_the_users_line():
    layer = nn.Linear(3, 2)
    with pytest.raises(ValueError) as error:
        line = here(); layer(Tensor([1.0, 2.0]))
    assert line in str(error.value)


def test_an_error_inside_a_function_of_numpy_names_the_users_line():
    with pytest.raises(ValueError) as error:
        line = here(); np.sum(Tensor([1.0]), axis=3)
    assert line in str(error.value)


def test_the_line_is_that_of_the_failing_call_in_a_loop():
    lines = []
    for shape in [(2,), (3,)]:
        with pytest.raises(ValueError) as error:
            lines.append(here()); Tensor.zeros(shape) + Tensor.zeros(5)
        assert lines[-1] in str(error.value)


def test_code_without_a_file_has_a_line_too():
    names = {"Tensor": Tensor}
    with pytest.raises(ValueError, match="<string>:2"):
        exec("a = Tensor.zeros(2)\na + Tensor.zeros(3)", names)


# ---- threads ----


def train(seed, steps=15):
    """The losses of a small network; its own seed makes them the same in every thread."""
    Tensor.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x = Tensor(rng.standard_normal((64, 8)).astype(np.float32))
    y = Tensor(rng.integers(0, 2, 64).astype(np.int32))
    first, second = nn.Linear(8, 16), nn.Linear(16, 2)
    optimizer = nn.AdamW(nn.parameters([first, second]), lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = second(first(x).relu()).cross_entropy(y)
        optimizer.zero_grad()
        loss.backward(optimizer.params)
        optimizer.step(loss)
        losses.append(loss.item())
    return losses


def test_eight_threads_train_at_once_and_get_the_bits_of_one():
    alone = [train(seed) for seed in range(8)]
    together = [None] * 8

    def work(seed):
        together[seed] = train(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_threads_that_need_the_same_new_plan_share_it():
    x = Tensor(np.arange(7 * 11, dtype=np.float32).reshape(7, 11))
    barrier = threading.Barrier(8)
    results = []

    def work():
        barrier.wait()
        results.append((x * 3.25 + 0.125).sum(0).tolist())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and all(r == results[0] for r in results)


def test_no_grad_is_of_one_thread():
    weight = Tensor([1.0], requires_grad=True)
    seen = []
    with uopc.no_grad():
        thread = threading.Thread(target=lambda: seen.append((weight * 2).requires_grad))
        thread.start()
        thread.join()
        assert not (weight * 2).requires_grad
    assert seen == [True]


def test_other_threads_run_while_one_computes(tmp_path):
    """A compiler that waits for another Python thread ends only if that thread can run."""
    if os.name != "posix":
        pytest.skip("the compiler is a shell script")
    fifo, script = tmp_path / "go", tmp_path / "cc"
    os.mkfifo(fifo)
    script.write_text(f'#!/bin/sh\ncase "$*" in *-o*) read line < {fifo};; esac\nexec gcc "$@"\n')
    script.chmod(0o755)
    code = f"""
        import threading, uopc
        def open_the_way():
            with open({str(fifo)!r}, "w") as way:
                way.write("go\\n")
        thread = threading.Thread(target=open_the_way)
        thread.start()
        print((uopc.Tensor([1.0, 2.0]) * 3).tolist())
        thread.join()
    """
    assert run(code, tmp_path, CC=str(script)) == "[3.0, 6.0]\n"


# ---- forks ----


@unix
def test_forks_in_the_middle_of_training(tmp_path):
    """Children of a process whose threads compute go on computing, new plans included."""
    code = """
        import os, threading, warnings
        import numpy as np
        import uopc
        from uopc import Tensor
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's own, about forks
        stop = threading.Event()

        def work(k):
            x, n = Tensor(np.ones((16, 16), np.float32)), 0
            while not stop.is_set():
                n += 1
                # New shapes compile, the others only run.
                rows = 1 + n // 8 % 16
                assert (x[:rows] @ x + k).sum().item() == rows * 16 * (16 + k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
        for thread in threads:
            thread.start()
        for attempt in range(10):
            child = os.fork()
            if child == 0:
                good = (Tensor.ones(3 + attempt) * 2).sum().item() == 2 * (3 + attempt)
                os._exit(0 if good else 1)
            assert os.waitpid(child, 0)[1] == 0, attempt
        stop.set()
        for thread in threads:
            thread.join()
        print("ok")
    """
    assert run(code, tmp_path) == "ok\n"


@unix
def test_a_pool_of_forked_workers(tmp_path):
    code = """
        import multiprocessing, warnings
        from uopc import Tensor
        warnings.simplefilter("ignore", DeprecationWarning)
        offset = Tensor([100.0]).realize()

        def work(n):
            return (Tensor.arange(n).sum() + offset).item()

        if __name__ == "__main__":
            work(3)
            with multiprocessing.get_context("fork").Pool(4) as pool:
                print(pool.map(work, range(1, 9)))
    """
    expected = [100.0 + n * (n - 1) / 2 for n in range(1, 9)]
    assert run(code, tmp_path) == f"{expected}\n"


# ---- signals ----


@unix
def test_ctrl_c_while_compiling(tmp_path):
    """The compiler itself sends the signal and then waits to be killed."""
    script = tmp_path / "cc"
    hang = f"echo $$ > {tmp_path}/pid; kill -INT $PPID; exec tail -f /dev/null"
    script.write_text(
        f'#!/bin/sh\nif [ -e {tmp_path}/pid ]; then exec gcc "$@"; fi\n'
        f'case "$*" in *-o*) {hang};; esac\nexec gcc "$@"\n'
    )
    script.chmod(0o755)
    code = f"""
        import os, uopc
        x = uopc.Tensor([1.0, 2.0]) * 3
        try:
            x.realize()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
        try:
            os.kill(int(open({str(tmp_path / "pid")!r}).read()), 0)
            print("the compiler is still there")
        except ProcessLookupError:
            pass
        print(x.tolist())
    """
    assert run(code, tmp_path, CC=str(script)) == "interrupted\n[3.0, 6.0]\n"


@unix
def test_ctrl_c_while_one_long_kernel_runs(tmp_path):
    """A signal that comes every 50 ms counts once the kernel runs, which takes very long."""
    code = """
        import os, signal
        from uopc import Tensor, kernelize
        a = Tensor.ones((3000, 3000)).realize()
        before = kernelize.stats().launches

        def handler(number, frame):
            if kernelize.stats().launches > before:
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        try:
            ((a @ a) @ (a @ a)).sum().item()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
        print((a[:2, :2] + 1).tolist(), flush=True)
        os._exit(0)  # does not wait for the kernel that was left
    """
    assert run(code, tmp_path) == "interrupted\n[[2.0, 2.0], [2.0, 2.0]]\n"


@unix
def test_a_handler_that_does_not_raise_does_not_stop_anything(tmp_path):
    code = """
        import signal
        from uopc import Tensor
        seen = []

        def handler(number, frame):
            seen.append(Tensor([1, 2]).sum().item())
            if len(seen) < 3:
                signal.setitimer(signal.ITIMER_REAL, 0.02)

        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        a = Tensor.ones((200, 200)).realize()
        while len(seen) < 3:
            assert (a @ a).sum().item() == 200.0**3
        print(set(seen))
    """
    assert run(code, tmp_path) == "{3}\n"


@unix
def test_a_fork_after_ctrl_c_in_a_long_compilation(tmp_path):
    """What is left of the compilation goes on in the background and takes locks of the process."""
    code = """
        import os, signal, warnings
        from uopc import Tensor
        warnings.simplefilter("ignore", DeprecationWarning)
        t = Tensor([1.0, 2.0])
        for k in range(8000):
            t = t * 1.5 + 1.0
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            t.realize()
            print("not interrupted")
        except KeyboardInterrupt:
            pass
        for n in range(1, 6):
            child = os.fork()
            if child == 0:
                x = Tensor.ones(n)
                for k in range(200):
                    x = x * 0.5 + k
                os._exit(0 if x.shape == (n,) and (Tensor.ones(n) * 2).sum().item() == 2 * n else 1)
            assert os.waitpid(child, 0)[1] == 0
        print("ok")
    """
    assert run(code, tmp_path) == "ok\n"


# ---- notices ----


def test_no_compiler_is_a_warning_and_the_interpreter_goes_on(tmp_path):
    code = """
        import warnings
        from uopc import Tensor
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print((Tensor([1.0, 2.0]) * 3).tolist())
        print(len(caught), caught[0].category.__name__, "C compiler" in str(caught[0].message))
    """
    out = run(code, tmp_path, PATH=str(tmp_path), CC="")
    assert out == "[3.0, 6.0]\n1 RuntimeWarning True\n"


def test_an_unknown_setting_is_an_error_that_names_it(tmp_path):
    code = """
        from uopc import Tensor
        try:
            Tensor([1.0]).exp().realize()
        except ValueError as error:
            print(error)
    """
    assert "UOPC_NO_SUCH" in run(code, tmp_path, UOPC_NO_SUCH="1")


def test_dumps_go_to_standard_error(tmp_path):
    file = tmp_path / "dump.py"
    file.write_text("import uopc\nuopc.Tensor([1.0]).exp().realize()\n")
    environment = {**os.environ, "UOPC_DUMP": "all", "UOPC_CACHE_DIR": str(tmp_path / "kernels")}
    command = [sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "exp" in done.stderr and done.stdout == ""


# ---- the command ----


def test_the_command_of_the_wheel():
    command = [sys.executable, "-m", "uopc"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"uopc {uopc.__version__}\n")
    done = subprocess.run([*command, "ops", "--names"], capture_output=True, text=True)
    assert done.returncode == 0 and "reduce" in done.stdout
    done = subprocess.run([*command, "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2 and "nonsense" in done.stderr

"""Timing as `uopc bench` does it.

Three steps to warm up; samples of at least 20 ms each; blocks of half a second, of which those count
during which other processes were quiet; the median of what counts.
"""

import os
import time

WARMUP, SAMPLE, STEPS, BLOCK, QUIET, SAMPLES, PATIENCE = 3, 0.02, 2000, 0.5, 0.12, 5, 6


def busy():
    """Seconds of processor time that everything on this machine has used."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return sum(ticks[k] for k in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")


class Others:
    """The processors that other processes use from now on."""

    def __init__(self):
        self.begun, self.busy, self.own = time.perf_counter(), busy(), self.used()

    def used(self):
        times = os.times()
        return sum(times[:4])

    def cores(self):
        wall = time.perf_counter() - self.begun
        return max(0.0, busy() - self.busy - (self.used() - self.own)) / max(wall, 1e-9)


def measure(step, wait, budget):
    """The times of `step`, which may still be at work until `wait` returns."""
    begun = time.perf_counter()
    for _ in range(WARMUP):
        step()
        wait()
        if time.perf_counter() - begun > 20:
            break
    begun = time.perf_counter()
    step()
    wait()
    steps = max(1, min(STEPS, int(SAMPLE / max(time.perf_counter() - begun, 1e-7))))
    quiet, everything, quiet_time, begun = [], [], 0.0, time.perf_counter()
    while quiet_time < budget or len(quiet) < SAMPLES:
        others, block, start = Others(), [], time.perf_counter()
        while not block or time.perf_counter() - start < min(BLOCK, budget):
            t = time.perf_counter()
            for _ in range(steps):
                step()
            wait()
            block.append((time.perf_counter() - t) / steps)
        everything += block
        if others.cores() <= QUIET:
            quiet += block
            quiet_time += time.perf_counter() - start
        if time.perf_counter() - begun > PATIENCE * budget:
            break
    noisy = len(quiet) < SAMPLES and len(quiet) * 3 < len(everything)
    samples = sorted(everything if noisy else quiet)
    n = len(samples)
    return {
        "median_s": samples[n // 2],
        "min_s": samples[0],
        "p90_s": samples[min(n - 1, n * 9 // 10)],
        "samples": n,
        "steps_per_sample": steps,
        "noisy": noisy,
        "ms": round(samples[n // 2] * 1e3, 5),
    }

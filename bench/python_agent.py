# SPDX-License-Identifier: Apache-2.0
"""For bench_agent.py: the agent beside Python. Its cost where the stacks on every CPU are 18 native and 9 Python
frames (py_stack.py), and its memory beside a job of PyTorch with some 300 mappings (demo/train.py)."""
import os
import statistics
import subprocess
import sys
import time

from beside_agent import Agent, cpu_s, figures

HERE, PYTHON = os.path.dirname(os.path.abspath(__file__)), "/usr/bin/python3"
TRAIN = os.path.join(os.path.dirname(HERE), "demo/train.py")
ONLY = ("-o", "select.include=py-stack,train")  # of other programs no stacks are taken


def cost(o, emit):
    """Lines, and the cost in % of one CPU for each CPU that the programs kept busy."""
    busy = [subprocess.Popen([PYTHON, os.path.join(HERE, "py_stack.py"), str(c)],
                             env={"STRATA_SERVICE": "py-stack"}) for c in o.cpus]
    agent = None
    try:
        agent = Agent(o, 10101010, *ONLY)
        time.sleep(o.settle + o.first)
        used, before = [], figures(agent.state)
        for _ in range(o.beside):
            own, cpu = sum(agent.used()), sum(cpu_s(p.pid) for p in busy)
            time.sleep(o.seconds)
            used.append(100 * (sum(agent.used()) - own) / (sum(cpu_s(p.pid) for p in busy) - cpu))
        f = {k: v - before.get(k, 0) for k, v in figures(agent.state).items()}
        samples = max(1, f["agent_python_samples"])
        emit("python_frames", [f["agent_python_frames"] / samples], "per stack")
        emit("python_merged", [100 * f["agent_python_merged"] / samples], "%")
        emit("python_cost_99hz", used, "% of one CPU per busy CPU")
        return statistics.fmean(used)
    finally:
        for p in busy:
            p.kill()
            p.wait()
        if agent:
            agent.stop()


def torch_memory(o, emit):
    """Lines, and MiB at most of all processes and maps; None: there is no PyTorch here, or no time."""
    if o.smoke:
        return None
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode:
        print(f"skip: no torch for {PYTHON}", file=sys.stderr)
        return None
    agent, job = Agent(o, 10101010, *ONLY), None
    try:
        job = subprocess.Popen([PYTHON, TRAIN, str(3 * o.seconds)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={"STRATA_SERVICE": "train"})
        held, mapped = [], 0
        while job.poll() is None:
            time.sleep(1)
            maps = figures(agent.state)
            held.append(agent.memory_kib() / 1024 +
                        (maps["agent_map_bytes"] + maps.get("agent_offcpu_bytes", 0)) / 2 ** 20)
            with open(f"/proc/{job.pid}/maps", encoding="utf-8") as f:
                mapped = max(mapped, sum(line.split()[1][2] == "x" for line in f))
        emit("torch_mappings", [mapped], "executable")
        emit("torch_memory", held, "MiB")
        return max(held)
    finally:
        if job and job.poll() is None:
            job.kill()
            job.wait()
        agent.stop()

# %% [markdown]
# # Check the devices
#
# In lesson 00 you started two ranks on what this machine has, and a table said why. Here you find out what
# stands behind that table: which devices can train together, and how many ranks they can keep busy.
#
# **You'll do**
#
# 1. count the devices of this machine, and ask what the count leaves out
# 2. find out what `CUDA_VISIBLE_DEVICES` hides and renumbers, and when it is read
# 3. count what can really be used, on eight made-up machines, and see what the course decides there
# 4. measure how many ranks this machine can keep busy
#
# **You'll learn** the difference between a device that is plugged in, one that is counted, and one that
# can take part in training.
#
# **You need** about 50 minutes, two CPU cores, and lesson 00. Cells that differ on GPUs: none.

# %% [markdown]
# ## The claim
#
# > `torch.cuda.device_count()` tells whether you can train on several GPUs.
#
# Further down you meet eight made-up machines. On six of them the count is 2 or more. Do you believe the
# claim? Commit yourself before you go on.

# %%
import torch
import mgpu_utils as mgpu

mgpu.predict("01/count", int, answer=...,
             question="On how many of the six can two GPUs train together?")

# %% [markdown]
# ## Count the devices by hand
#
# The number that the claim speaks of, on this machine:

# %%
torch.cuda.device_count()

# %% [markdown]
# On a machine without NVIDIA or AMD GPUs it is 0. But 0 can have many causes, and 2 can mislead. Four
# questions that the number does not answer:
#
# **Is there an accelerator of another kind?** Intel and Apple have GPUs too. `torch.accelerator` knows
# all kinds, and calls AMD's `cuda`.

# %%
print(torch.accelerator.current_accelerator(), torch.accelerator.device_count())

# %% [markdown]
# **Was this PyTorch built for GPUs?** There is a build without any code for GPUs. It is small, it is
# easily installed by accident, and it counts 0 on a machine full of GPUs.

# %%
print("CUDA:", torch.version.cuda, " ROCm:", torch.version.hip)

# %% [markdown]
# When both are `None`, this build cannot use an NVIDIA or AMD GPU, whatever is plugged in.
#
# **Can the devices talk to each other?** Each backend of lesson 00 is built into PyTorch, or not. Ranks on
# GPUs need `nccl`, ranks on CPUs need `gloo`.

# %%
import torch.distributed as dist

{name: getattr(dist, f"is_{name}_available")() for name in ("gloo", "nccl", "mpi")}

# %% [markdown]
# **Who else uses them?** The count says nothing about free memory. It does not say whether two GPUs reach
# each other's memory directly (*peer access*) either.
#
# Whoever asks a GPU for its name or its free memory opens it. That takes hundreds of megabytes on each GPU,
# and the process must not be forked from then on. So `mgpu.survey()` lets a short-lived process ask.
# You know its table from lesson 00. Now you know where each row comes from:

# %%
mgpu.survey()

# %% [markdown]
# And this notebook has still opened no GPU:

# %% tags=["nbval-check-output"]
torch.cuda.is_initialized()

# %% [markdown]
# Which kind of link joins two GPUs is not known to PyTorch. In a terminal, `nvidia-smi topo -m` draws it:
# `NV` and a number stands for fast NVLink, anything else goes through the machine's own bus. Without GPUs
# you cannot see this table.

# %% [markdown]
# ## What CUDA_VISIBLE_DEVICES hides
#
# This variable decides which GPUs a process sees, in which order. To try it without harm, ask a child
# process. The function starts one, and prints what it says and the last line of an error.

# %%
import os
import subprocess
import sys

def in_a_child(code):
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    print("\n".join([done.stdout.rstrip(), *done.stderr.strip().splitlines()[-1:]]).strip())

# %% [markdown]
# For each value: what PyTorch reads from it, and how many GPUs it then counts.

# %%
in_a_child("""
import os, torch
for value in ["0,1", "1,0", "1", "0,0", "1,-1,0", "-1", ""]:
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    read = torch.cuda._parse_visible_devices()
    print(f"{value!r:9} is read as {str(read):7}  counted: {torch.cuda.device_count()}")
""")

# %% [markdown]
# On a machine without GPUs the last column is 0 everywhere: there is nothing to hide. What PyTorch reads is
# the same on every machine. Three lines are worth a second look:
#
# - `1,0` keeps both GPUs and **swaps their numbers**.
# - `0,0` names one GPU twice, and then **all** are hidden.
# - `1,-1,0` ends at the first entry that is no GPU. What follows is ignored.
#
# Instead of numbers the variable may hold long names, `GPU-...` for a whole GPU or `MIG-...` for a slice
# of one. A process can use one slice only, whatever the variable says.
#
# The picture shows a machine with four GPUs and the value `3,1`:

# %%
mgpu.plots.visible_devices([3, 1], 4, 'CUDA_VISIBLE_DEVICES="3,1" on a machine with 4 GPUs');

# %% [markdown]
# Code always starts counting at `cuda:0`. Here that is GPU 3. A tool that shows the whole machine, such
# as `nvidia-smi`, goes on calling it 3.

# %% [markdown]
# ### It is read once
#
# When must it be set? Before the first use of a GPU in the process. CUDA reads it there, and never
# again. Below, the child sets it twice, before and after that moment.

# %%
in_a_child("""
import os, torch
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
if torch.cuda.is_available():
    torch.zeros(1, device="cuda")
print("GPUs visible:", torch.cuda.device_count())
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print("after hiding them all:", torch.cuda.device_count())
""")

# %% [markdown]
# With GPUs, both lines say 1: the second setting came too late. Without GPUs both say 0, and prove
# nothing. But there is a variable of the same kind for CPUs, and it shows the same mistake everywhere.
# `OMP_NUM_THREADS` sets the number of threads, and PyTorch reads it when it is imported.

# %%
mgpu.predict("01/late", ["1", "3"], answer=...,
             question="1 before the import, 3 after it: how many threads?")

# %% tags=["nbval-check-output"]
in_a_child("""
import os
os.environ["OMP_NUM_THREADS"] = "1"
import torch
os.environ["OMP_NUM_THREADS"] = "3"
print("threads:", torch.get_num_threads())
""")

# %%
mgpu.reveal("01/late", "1", "The second setting came after the variable had been read.")

# %% [markdown]
# A notebook imports first and thinks later, so there such a line often comes too late. The safe place is
# outside: set the variable in the terminal, before Python starts. The ranks of the course take it
# over from this notebook when they start.

# %% [markdown]
# ## Count what can be used
#
# Now the eight machines. They are made up, but each has a trouble that real ones have. A machine knows
# what is plugged in, for which GPUs its PyTorch was built, and the variable:

# %% tags=["nbval-check-output"]
from mgpu_utils.sample_machines import MACHINES, runs_on

old = MACHINES["old card"]
print("GPUs:     ", [gpu.capability for gpu in old.gpus])
print("built for:", old.built_for)
print("counted:  ", old.counted)

# %% [markdown]
# The pairs are *compute capabilities*, the generation of a GPU: major and minor version. Code that was
# built for 8.0 runs on 8.6, but not on 3.7 and not on 9.0. (A build may also hold PTX, an intermediate form
# that newer GPUs can translate. Older ones cannot.) PyTorch counts a GPU that it has no code for, and the
# first work on it fails.

# %% tags=["nbval-check-output"]
[runs_on(gpu.capability, old.built_for) for gpu in old.gpus]

# %% [markdown]
# So for a job that needs 4 GiB, the GPUs that are good for something are:

# %%
def good_gpus(machine, need_gib=4):
    fits = [gpu for gpu in machine.visible if gpu.free_gib >= need_gib]
    return [gpu for gpu in fits if runs_on(gpu.capability, machine.built_for)]

# %% [markdown]
# To train *together*, they also need a backend that joins them:

# %%
def together(machine):
    good = len(good_gpus(machine))
    return good if machine.nccl else min(good, 1)

# %%
rows = {name: (len(machine.gpus), machine.counted, together(machine), machine.note)
        for name, machine in MACHINES.items()}
mgpu.plots.counted_and_usable(rows, "GPUs of eight made-up machines");

# %% [markdown]
# The claim looks at the squares: two or more, and you can train on several GPUs. The truth are the dots.
# Where they part, the job stops with an error, or runs on one GPU. *Wrong wheel* and *typing error* are
# the other way round: the GPUs are there and nobody counts them.

# %% tags=["nbval-check-output"]
counted = [machine for machine in MACHINES.values() if machine.counted >= 2]
really = [machine for machine in counted if together(machine) >= 2]
print(f"{len(counted)} machines count 2 or more; on {len(really)} of them 2 can train together")

# %%
mgpu.reveal("01/count", len(really))

# %% [markdown]
# ### What the course does with it
#
# `mgpu.plan` decides where ranks run. The decision itself looks at plain data, so you can give it machines
# that are not here. Each gets one sentence:

# %% tags=["nbval-check-output"]
from textwrap import fill
from mgpu_utils.planning import decide

for name, machine in MACHINES.items():
    hardware = machine.hardware(usable=len(good_gpus(machine)))
    print(fill(f"{name:13} {decide(hardware).reason}", 86, subsequent_indent=" " * 14))

# %% [markdown]
# And here, on the real one:

# %%
print(mgpu.plan().reason)

# %% [markdown]
# ## How many ranks can this machine keep busy?
#
# Where ranks run on CPU cores, the same question comes back: how many cores are there, and how many can
# be used?

# %%
import psutil

print(os.cpu_count(), "in the machine,", mgpu.usable_cores(), "usable")
others = psutil.cpu_percent(interval=0.5)
print(f"busy with other things at this moment: {others:.0f} %")

# %% [markdown]
# The two differ on shared machines and in containers, where a process may use only some of the cores, or
# only a part of their time. `os.cpu_count()` does not see that. The last line is about everything else that
# runs on this machine. The smaller its number, the clearer is the picture below.
#
# Measure it. Four ranks, on the CPU on purpose: this is about cores.

# %%
ranks = mgpu.start_ranks(4, device="cpu")

# %% tags=["nbval-check-output"]
ranks.run(lambda: f"rank {rank} of world_size {world_size}, on {device}")

# %% [markdown]
# First one rank works, then two at the same time, then three, then all four. Each has the same matrices
# to multiply. They begin together: [`barrier`](../docs/glossary.md#barrier) is a collective that moves nothing,
# it makes every rank wait until all have come.

# %%
from mgpu_utils.timing import measure

def seconds(busy):
    matrix = torch.ones(200, 200)
    def work():
        return [matrix @ matrix for _ in range(30)]

    dist.barrier()
    if rank < busy:
        return measure(work, warmup=1, repeats=4).median

# %% [markdown]
# The slowest rank sets the time. Work per second is the number of busy ranks, divided by that time. What one
# rank does alone is measured anew in each round, and compared within the round only: the machine may be
# busier a second later.

# %%
def one_round():
    slowest = {busy: max(ranks.run(seconds, busy)[:busy]) for busy in (1, 2, 3, 4)}
    return {busy: busy * slowest[1] / slowest[busy] for busy in slowest}

# %%
from statistics import median

def work_per_second():
    rounds = [one_round() for _ in range(4)]
    return {busy: median(each[busy] for each in rounds) for busy in rounds[0]}

usable = f"usable cores: {mgpu.usable_cores()}"
lines = {usable: work_per_second()}

# %% [markdown]
# Then the same again, while all four may use one core only. Linux can do that to a process
# (`sched_setaffinity`); elsewhere you get one line in the picture.

# %%
def may_use(cores):
    os.sched_setaffinity(0, cores)
    return f"{mgpu.usable_cores()} of {os.cpu_count()}"

if hasattr(os, "sched_setaffinity"):
    mine = os.sched_getaffinity(0)
    print("usable cores, as each rank says:", ranks.run(may_use, {min(mine)}))
    lines["usable cores: 1"] = work_per_second()
    ranks.run(may_use, mine)

# %%
mgpu.plots.work_of_ranks(lines, "Matrix products by 1 to 4 ranks, one thread each");

# %% [markdown]
# On a quiet machine a line rises as long as there is a free core for one more rank, and then it stays
# level: the ranks take turns, and four on one core do the work of one. Their results are right all the
# same, so the course runs everywhere. But a [speed-up](../docs/glossary.md#speed-up) can only be measured up to
# the number of usable cores, less whatever else keeps them busy.

# %% [markdown]
# ## Verdict on the claim

# %% tags=["verdict"]
at_once = min(mgpu.usable_cores(), 4)
print(f"of {len(counted)} made-up machines that count 2 or more GPUs, "
      f"{len(really)} can train on 2; here the count is {torch.cuda.device_count()}, "
      f"and {at_once} CPU ranks did {lines[usable][at_once]:.1f} x the work of one "
      f"(machine {others:.0f}% busy before)")

# %% [markdown]
# **Half true.** The count tells what this process can see, not what it can use.
#
# A count below 2 does rule out several GPUs, for this process as it was started. It may be the variable's
# doing, or the build's. A count of 2 promises nothing: memory, compute capability and backend decide. And
# no GPU at all does not mean one device: ranks also run on cores, and there the number that counts is that
# of the usable ones.

# %% [markdown]
# ## Exercises
#
# ### Exercise 1: pick devices, or say why not (6 minutes, difficulty 1 of 3)
#
# Return `wanted` different devices as a list, `cuda:0` first. `usable` is the number of GPUs that can be
# used. When there are not enough, or when `wanted` is less than 1, raise a `ValueError`. For too few, its
# message must name both numbers.

# %%
def pick_devices(wanted, usable):
    ### BEGIN SOLUTION
    if wanted < 1:
        raise ValueError(f"wanted is {wanted}, but at least 1 device is needed.")
    if wanted > usable:
        raise ValueError(f"{wanted} GPUs are wanted, but only {usable} can be used.")
    return [torch.device("cuda", index) for index in range(wanted)]
    ### END SOLUTION

mgpu.check("01/pick", pick_devices)

# %% [markdown]
# ### Exercise 2: which GPU is it? (10 minutes, difficulty 2 of 3)
#
# A log says that `cuda:1` ran out of memory, on a machine started with `CUDA_VISIBLE_DEVICES=3,1`. Which GPU
# is that in the machine? Return its number, for any `value` of the variable that holds numbers, and any
# device number. Return `None` when the process has no such device.

# %%
def physical(value, number):
    ### BEGIN SOLUTION
    entries = []
    for entry in value.split(","):
        if not entry.strip().isdigit():
            break
        entries.append(int(entry))
    if len(set(entries)) < len(entries) or number >= len(entries):
        return None
    return entries[number]
    ### END SOLUTION

mgpu.check("01/physical", physical)

# %% [markdown]
# ### Exercise 3: one device a rank (8 minutes, difficulty 2 of 3)
#
# A job runs on several machines, with as many ranks on each as it has GPUs. `rank` counts over all
# machines, [`local_rank`](../docs/glossary.md#local_rank) starts at 0 on each of them, and `gpus` is the
# number of usable GPUs of this machine. Return the device of the rank: a GPU of its own, or the CPU where
# there are no GPUs. When GPUs are there but not one for this rank, raise a `ValueError`.
#
# The check tries made-up machines. Then each of the four ranks adds up its part of the digits on the device
# that you chose, and the total must be what one process finds.

# %%
def device_for(rank, local_rank, gpus):
    ### BEGIN SOLUTION
    if gpus == 0:
        return torch.device("cpu")
    if local_rank >= gpus:
        raise ValueError(f"local rank {local_rank} needs a GPU, but this machine has {gpus}.")
    return torch.device("cuda", local_rank)
    ### END SOLUTION

mgpu.check("01/device", device_for, ranks=ranks)

# %% [markdown]
# ## Break it: more devices than there are
#
# Ask PyTorch for GPU 99, in a child process:

# %%
in_a_child("import torch; torch.ones(1, device='cuda:99')")

# %% [markdown]
# Without GPUs it complains about the build. With GPUs it is an *invalid device ordinal*. Neither says how
# many there are, or what to do. The course asks before it starts anything. The next cell ends in an error:

# %% tags=["raises-exception"]
mgpu.start_ranks(99, device="cuda")

# %% [markdown]
# ## Break it: fork a process that has used its devices
#
# `fork` makes a new process as a copy of this one. The copy has the memory, but not the threads and not the
# open GPUs. The child process below works, forks itself, and lets the copy do the same work. After two
# seconds the copy has to say on which line it stands.

# %%
FORK = """
import faulthandler, os, sys, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(2)

def work(who):
    torch.ones(1000, 1000, device=device).sum()
    print(who, "has finished", flush=True)

work("original")
if os.fork() == 0:
    faulthandler.dump_traceback_later(2, exit=True, file=sys.stdout)
    work("copy")
    os._exit(0)
os.wait()
"""

# %%
if hasattr(os, "fork"):
    in_a_child(FORK)
else:
    print("This system has no fork, and so not this trouble.")

# %% [markdown]
# With a GPU you read *Cannot re-initialize CUDA in forked subprocess*. On Linux without one, the copy
# says nothing by itself. It stands still in its first line of work, because it waits for threads that
# exist in the original only. Without the alarm it would stand there for ever, and so would everyone who
# waits for it.
#
# The cure: start new processes instead of copies (*spawn*). The ranks of the course are new processes, so you
# could use PyTorch in this notebook as much as you liked before you started them. They are unharmed:

# %% tags=["nbval-check-output"]
ranks.run(lambda: torch.ones(1000, 1000).sum().item())

# %% [markdown]
# And this notebook has opened no GPU, from the first cell to the last:

# %% tags=["nbval-check-output"]
torch.cuda.is_initialized()

# %% [markdown]
# ## On real GPUs
#
# - `mgpu.survey()` adds a row for each GPU: name, memory, free memory, compute capability, and who reaches
#   whom.
# - The columns *counted* of the child processes come to life, and the fork fails with a clear error
#   instead of standing still.
# - In containers and on clusters somebody has often set `CUDA_VISIBLE_DEVICES` for you. The survey shows
#   its value and what it means.

# %% [markdown]
# ## Recap
#
# 1. You counted, and asked what the count leaves out: other kinds of accelerator, the build, the backends,
#    free memory.
# 2. You saw what `CUDA_VISIBLE_DEVICES` does: it hides, it renumbers, and it is read once.
# 3. You counted what can be used on eight machines: three of six counts promised too much.
# 4. You measured how many ranks keep busy: as many as there are usable cores.
#
# **One step further.** Matrix products are not training. [Scale out](../benchmarks/02_scale_out.ipynb) measures
# what 1, 2, ... up to all devices of this machine bring for a whole training step. Next: [02 Split a model
# across devices](02_split_a_model.ipynb).

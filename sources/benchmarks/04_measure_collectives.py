# %% [markdown]
# # Measure collectives
#
# How long do ranks need to talk? This notebook times the four collectives that data parallelism is made of, on **this**
# machine, from small messages to large ones:
#
# | collective | what it does | who uses it |
# |---|---|---|
# | `all_reduce` | everybody gets the sum of all | DDP, for the gradients |
# | `broadcast` | everybody gets what rank 0 has | DDP, once, when it wraps the model |
# | `all_gather` | everybody gets the pieces of all | sharded training, for the parameters |
# | `reduce_scatter` | everybody gets one piece of the sum | sharded training, for the gradients |
#
# **You need** two CPU cores or two GPUs; no cell differs between them. From a shell:
# `mgpu bench --config benchmarks/configs/laptop.yaml --out results/laptop`.

# %% [markdown]
# ## What to measure
#
# `config` names a file in `configs/` with a section `collectives`. An empty `world_sizes` leaves what that file says;
# `quick` measures small messages once, only to see that everything runs.

# %% tags=["parameters"]
config: str = "configs/laptop.yaml"
out: str = "results/laptop/collectives"
world_sizes: list = []
quick: bool = False
resume: bool = False

# %%
from mgpu_utils import benchmark

settings = benchmark.from_parameters(
    "collectives", config=config, out=out, world_sizes=world_sizes, quick=quick, resume=resume
)
print(settings)

# %% [markdown]
# ## Measure
#
# The rules are those of [nccl-tests](https://github.com/NVIDIA/nccl-tests), the tool that checks GPU clusters:
#
# - first each result is **checked**; a wrong one is a failed run, however fast;
# - everything happens **in place**: no memory but the message itself;
# - all ranks start from a barrier, and the **slowest** rank's time counts;
# - the size is that of the whole message: for `all_gather` the whole result, for `reduce_scatter` the whole input.
#
# One thing differs: nccl-tests sends many calls in a row and gives their average. Here each call is timed alone
# (`calls: 1` in the file), as a program meets it that waits for the result. On GPUs this adds the time to start a call;
# set `calls: 20` to compare with nccl-tests.

# %%
records = benchmark.measure(settings)

# %%
for line in benchmark.failures(records) or [f"all {len(records)} runs went well"]:
    print(line)

# %% [markdown]
# ## Time against size
#
# A message costs two things:
#
# > time = **latency** + bytes / **bandwidth**
#
# Latency is what even an empty message pays: starting the call, waking the other rank, one trip there and back.
# Bandwidth is how fast the bytes flow once they do. On these axes the first is the flat part of a curve, the second is
# the slope. The lower panel shows what the line hides: points away from 1 are times that it does not describe.

# %%
from IPython.display import display

figures = benchmark.write(settings, records)
for name, figure in figures.items():
    if name.startswith("times"):
        display(figure)

# %% [markdown]
# The line of each collective, with the errors of its two numbers. `half_bandwidth_bytes` is latency x bandwidth: a
# message of that size spends as long on one as on the other.

# %%
from mgpu_utils.benchmark import collectives_table

table = settings.kind.summarise(records)
collectives_table.lines(table).round(3)

# %% [markdown]
# **Where the line misses.** One slope is a model, and messages know nothing of it. Small ones stay in the processor's
# caches, large ones do not; TCP and the library cut long ones into pieces. Where the points ask for it, the sentences
# below name a second slope and the size where it starts.

# %% [markdown]
# ## Bandwidth against size
#
# *Algorithm bandwidth* is bytes over time. It cannot be compared between collectives or numbers of ranks, because they
# must send different amounts for the same message. *Bus bandwidth* corrects that: it is what the busiest link carries.
# With n ranks, `all_reduce` counts 2(n - 1)/n times the message, `all_gather` and `reduce_scatter` (n - 1)/n times,
# `broadcast` once ([the reasons](https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md)).

# %%
for name, figure in figures.items():
    if name.startswith("bus"):
        display(figure)

# %% [markdown]
# ## In words

# %%
print("\n\n".join(benchmark.findings(settings, records)))

# %% [markdown]
# ## What this means for training
#
# Two messages that DDP really sends: **all** gradients of the digits network (10,026 numbers of 4 bytes, one bucket),
# and one full bucket of a large model (25 MiB, DDP's default). Which of the two costs takes the time? Read
# `latency_share`, and `line_miss` for how far to trust it: measured over line, at the measured size nearest to it.
# A message larger than all measured ones is read off the line beyond its end.

# %%
messages = collectives_table.landmarks()
collectives_table.shares(table, messages).round(3)

# %% [markdown]
# **How to read it.** Where latency takes most of the time, fewer bytes do not help: half precision or compression would
# save next to nothing, one message instead of many saves most. That is why DDP does not send each parameter's gradient
# by itself, but collects them in buckets. Where bandwidth takes the time, cutting the message into more buckets costs
# little, and lets sending start while `backward()` still runs.
#
# The same gradients in one message, and in as many messages as the network has parameters, all of the same size:

# %%
from mgpu_utils.models import build

parameters = len(list(build("digits_cnn").parameters()))
gradients = messages["gradients of the digits network"]
measured = table[(table["collective"] == "all_reduce") & table["seconds"].notna()]
if measured.empty:
    print("all_reduce was not measured, so there is no line to read this off")
for ranks in sorted(set(measured["world_size"])):
    line = collectives_table.fit_of(table, "all_reduce", ranks)
    one, many = line.seconds(gradients), parameters * line.seconds(gradients / parameters)
    print(f"{ranks} ranks, by the line: one bucket {one * 1e3:.3g} ms, {parameters} messages {many * 1e3:.3g} ms")

# %% [markdown]
# **On real GPUs** the picture is the same, with other numbers. nccl typically starts a call in tens of microseconds and
# moves tens to hundreds of GB/s inside a machine, so bandwidth takes over at larger messages: what is a large message
# here can be a small one there. nccl also changes its method with the size (rings, trees, other protocols), which
# shows as steps in the lower panel.
#
# **One step further:** put `factor: 2` in a configuration of your own for twice as many sizes, and compare the bend
# with the size of this machine's caches (`lscpu`). Notebook 06 uses latency and bandwidth to predict a training step.

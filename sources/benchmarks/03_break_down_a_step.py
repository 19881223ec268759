# %% [markdown]
# # Break down a step
#
# A training step loads a batch, runs forward and backward, and updates the parameters. With several devices it also
# moves data between them. How much of a step is each of these on **this** machine?
#
# This notebook answers with PyTorch's profiler. It cuts each step into parts that never overlap: **data**,
# **forward**, **backward**, **optimizer**, and what the strategy adds:
#
# - **exposed communication** (DDP): a collective is under way, and the device computes nothing meanwhile. What runs
#   hidden behind backward costs no time, so it is not counted;
# - **copies between devices** (DataParallel): it scatters the batch, replicates the model, gathers the outputs and
#   sums the gradients.
#
# **You need** two CPU cores or two GPUs; no cell differs between them. From a shell:
# `mgpu bench --config benchmarks/configs/laptop.yaml --out results/laptop --only breakdown`.

# %% [markdown]
# ## What to measure
#
# `config` names a file in `configs/` with a section `breakdown`. `quick` measures one round of two steps, only to
# see that everything runs.

# %% tags=["parameters"]
config: str = "configs/laptop.yaml"
out: str = "results/laptop/breakdown"
quick: bool = False
resume: bool = False

# %%
from mgpu_utils import benchmark

settings = benchmark.from_parameters("breakdown", config=config, out=out, quick=quick, resume=resume)
print(settings)

# %%
benchmark.plan_table(settings)

# %% [markdown]
# ## Measure
#
# A profiler slows down what it watches. So each run takes turns: a block of plain steps, a block of profiled steps,
# and again. The plain steps say how long a step really takes, the profiled ones where the time goes. If the parts
# miss more than 5 % of the plain step, the sentences below say how much.
#
# Batches come from a `DataLoader` without workers, in the step itself, so that their cost can be seen. Clearing the
# gradients counts as optimizer.

# %%
records = benchmark.measure(settings)

# %%
for line in benchmark.failures(records) or [f"all {len(records)} runs went well"]:
    print(line)

# %% [markdown]
# ## Results
#
# One bar is one step of the slowest rank. That is the one with the most work of its own: the others wait for it. The
# black line is the step without the profiler. Times are means over the middle half of the steps, and of the rounds;
# unlike medians, such parts add up.

# %%
figures = benchmark.write(settings, records)

# %% [markdown]
# The same in numbers. `overhead` is how much longer a step took under the profiler, `missing_share` what of the plain
# step the parts do not make up; it is negative where they make up more.

# %%
table = settings.kind.summarise(records)
numbers = [name for name in table.columns if name.endswith("_seconds") and table[name].any()]
table.set_index(["model", "strategy", "world_size"])[[*numbers, "overhead", "missing_share"]].T

# %% [markdown]
# ## In words

# %%
for line in benchmark.findings(settings, records):
    print(line)

# %% [markdown]
# **How to read it.** Compare `single` with a strategy on the same batch a device. Forward and backward ought to be
# the same. Where they grew, the devices share something: memory bandwidth, cores, or, under DataParallel, the one
# Python process that starts and steers all replicas. What is left is the price of the strategy: exposed communication
# for DDP, copies for DataParallel.
#
# Exposed communication has two causes, and the timeline tells them apart. Either the bytes take long, or one rank
# comes late and the others wait for it. In the first case all ranks show much of it, in the second only some do.

# %% [markdown]
# ## One step of every rank
#
# The timelines above show one step of each rank on one clock. On the main thread you see the parts, with
# what it waited for inside them. Below it, autograd computes gradients and collectives run. Look for a collective
# beside gradients: that one is hidden. Behind the last gradient it is exposed.
#
# DataParallel has one process. Its replicas work in threads, and start only when the model has been copied to all
# of them.

# %% [markdown]
# **The same in Perfetto.** For each configuration the folder `out` holds a trace of two steps, with a process for
# each rank. Open https://ui.perfetto.dev in a browser, choose *Open trace file*, and take one of these. The page
# reads the file in your browser; it is not sent anywhere. Move with the keys W, A, S, D.

# %%
sorted(path.name for path in settings.out.glob("trace-*.json"))

# %% [markdown]
# **On GPUs** the host only hands out work, and runs ahead of the device. So the parts are those of the device: a
# kernel counts as forward when forward launched it, whenever it runs. The lane `device` shows them, and nccl's
# kernels are the communication. *Other* is then the time in which the device had nothing to do, because the
# host was too slow; a larger batch makes it smaller.
#
# **One step further:** give `small_resnet` four times the batch in a configuration of your own. The all-reduce sends
# the same bytes, but backward offers more time to hide them in. Which share does the exposed part have now?

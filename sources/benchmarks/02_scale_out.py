# %% [markdown]
# # Scale out
#
# How much faster do two devices train than one? And four, and eight? This notebook measures every strategy on 1 to
# N devices of **this** machine and draws two curves: the **speed-up** over one device, and the **efficiency**,
# which is the speed-up shared out over the devices.
#
# Two lines stand beside the curves, the second one where the file asks for `independent`. The **ideal** is N times
# one device. The **limit** is what N independent jobs
# reach together: they never talk, so no data-parallel method can do better here.
#
# **You need** two CPU cores or two GPUs; no cell differs between them. From a shell:
# `mgpu bench --config benchmarks/configs/laptop.yaml --out results/laptop --only scale_out`.

# %% [markdown]
# ## What to measure
#
# `config` names a file in `configs/` with a section `scale_out`. `quick` measures one round of two steps, only to
# see that everything runs.

# %% tags=["parameters"]
config: str = "configs/laptop.yaml"
out: str = "results/laptop/scale_out"
quick: bool = False
resume: bool = False

# %%
from mgpu_utils import benchmark

settings = benchmark.from_parameters("scale_out", config=config, out=out, quick=quick, resume=resume)
print(settings)

# %% [markdown]
# One row is one configuration. On CPU cores the world sizes end where every rank still has a core of its own. More
# ranks than cores would share cores: they train correctly, but their times say nothing about scaling. So such a
# world size is refused, unless the section says `oversubscribe: true`; then its points are hollow.

# %%
benchmark.plan_table(settings)

# %% [markdown]
# ## Measure

# %%
records = benchmark.measure(settings)
for line in benchmark.failures(records) or [f"all {len(records)} runs went well"]:
    print(line)

# %% [markdown]
# ## Results
#
# Each point is a median over rounds. Speed-up is taken round by round, so that a slow minute of the machine counts
# for both sides of a ratio.

# %%
table = settings.kind.summarise(records)
for scaling, rows in table.groupby("scaling", sort=False):
    print(f"{scaling} scaling")
    display(benchmark.short_table(rows))

# %%
figures = benchmark.write(settings, records)

# %% [markdown]
# ## In words

# %%
for line in benchmark.findings(settings, records):
    print(line)

# %% [markdown]
# **How to read it.** Look at the gap between a strategy and the *limit* first: communication and copies make it,
# and a larger batch or fewer bytes make it smaller. The gap between the limit and the *ideal* belongs to the
# machine: cores share memory bandwidth, GPUs share power and links.
#
# **On real GPUs** the curves go to 2, 4, 8 devices, and the limit lies close to the ideal. `DataParallel` then is
# PyTorch's own class, and its curve bends early: one process feeds all devices.
#
# **One step further:** [Predict](06_predict.ipynb) computes such a curve before you buy the machine, from one
# device and the links between devices.

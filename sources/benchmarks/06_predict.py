# %% [markdown]
# # Predict
#
# What would your training do on 8 devices, on 64, on 4,096? Few people can try it. A model can be asked. You see one
# that is built from parts you can measure, and you see how far off it is, **before** you believe it:
#
# - against **this machine**: fitted to one step, asked about all the others;
# - against **published numbers**: fitted to two rows of a table, asked about the rest of it;
# - then curves to thousands of devices. Those are predictions, drawn dashed, and nobody measured them here.
#
# **You need** two CPU cores or two GPUs; no cell differs between them. From a shell:
# `mgpu bench --config benchmarks/configs/laptop.yaml --out results/laptop --only predict`.

# %% [markdown]
# ## What to measure
#
# `config` names a file in `configs/` with a section `predict`. `quick` takes one step of each kind, only to see that
# everything runs.

# %% tags=["parameters"]
config: str = "configs/laptop.yaml"
out: str = "results/laptop/predict"
quick: bool = False
resume: bool = False

# %%
from mgpu_utils import benchmark, reference_points, scaling
from mgpu_utils.benchmark import predict
from mgpu_utils.figures import scaling as figures

settings = benchmark.from_parameters("predict", config=config, out=out, quick=quick, resume=resume)
print(settings)

# %% [markdown]
# ## The parts of a step
#
# One launch measures for each model: forward, backward and optimizer on one device; the same step on all devices at
# once, without communication; all-reduces alone; and whole steps of DDP and of DataParallel, to compare with.
# Everything is measured in turns, so that a busy moment of the machine meets all of it alike.

# %%
records = benchmark.measure(settings)
for line in benchmark.failures(records) or [f"all {len(records)} runs went well"]:
    print(line)

# %% [markdown]
# ## From parts to a step
#
# DDP sends gradients in **buckets**, the last layers first. A bucket can go when the last of its gradients is computed.
# All-reduces run one after another, beside the rest of backward. What is still running after backward is **exposed**:
# only that part is visible in the step.
#
# Below, ResNet-50 on four GPUs that are linked by PCIe. Four buckets hide. The last one cannot: it holds the
# first layers, whose gradients come last.

# %%
four = scaling.preset("pcie-workstation")
figures.bucket_timeline(scaling.predict_ddp(four.workload(), 4, four.cluster).overlap);

# %% [markdown]
# ## This machine: predicted beside measured
#
# The model is fitted to **one** step of DDP and one of DataParallel (crossed out in the figure). It then predicts the
# other batches, the other models and, where there are more devices, the other world sizes. It knows the all-reduces,
# and how much N copies slow each other without any communication.

# %%
drawn = benchmark.write(settings, records)
predict.short_table(settings.kind.summarise(records))

# %% [markdown]
# A guess is easily right by luck. So the last sentence of each line gives what a much simpler guess reaches:
# everything slows down by the same factor as the fitted step.

# %%
for line in benchmark.findings(settings, records):
    print(line)

# %% [markdown]
# **How to read it.** Near the line: the parts explain the step. Far above or below it: something is missing in the
# model, or the machine was busy while it was measured. Small steps are the hardest: there, waiting for the slowest
# rank and for a free core is a large part of the step, and neither is in any datasheet.

# %% [markdown]
# ## Published numbers: eight V100s, and sixteen
#
# PyTorch's own DDP benchmark, on machines with eight V100s. The model gets ResNet-50 on 1 and 2 GPUs. For the
# other networks it gets only the speed of *one* GPU and their layers. It never sees a row with 4, 8 or 16.

# %%
published = scaling.validate_v100()
figures.published_beside_predicted(published)
print("\n".join(scaling.v100_findings(published)))

# %% [markdown]
# An honest look at it: the table is kind to every model. Its machines have such fast links that nothing is lost but a
# few per cent, so even a guess is close. Two numbers were fitted: what DDP costs by itself, and one bandwidth.

# %% [markdown]
# ## Far beyond this machine
#
# Now named hardware. Every number has a source (the table below). The band reaches from a perfect overlap to none at
# all; where in it a real machine lies, only measuring tells. Nothing in these curves knows of slow ranks, of data
# loading, or of other people's traffic, so read them as **upper bounds**.

# %%
for fast in (True, False):
    figures.predicted_scaling(scaling.preset_curves(fast=fast))

# %%
scaling.preset("dgx-a100")

# %% [markdown]
# That is one of `scaling.PRESETS`; every other one shows its sources in the same way. Where only a line rate is known,
# the table says so: nobody reaches it.
#
# Two things to see. On a slow network the steepest fall comes where the first cable leaves the machine, not at some
# large number of devices. And after it the curve is nearly flat: a ring sends each gradient about twice, however
# many devices there are.

# %% [markdown]
# ## Try it
#
# Halve the bandwidth. Double the batch: why does that help as much? Make buckets tiny, then huge: who is exposed
# then? Where sliders cannot be shown, the figure stands alone.

# %%
scaling.explore()

# %% [markdown]
# ## What others published
#
# Numbers of others, on their hardware, in their units: to compare with, not to be mixed with yours.

# %%
reference_points.beside().style.hide(axis="index").format(precision=1)

# %% [markdown]
# **One step further:** measure your own links with the notebook *Measure collectives*, put their bandwidth and latency
# into the sliders, and write down what you expect from twice as many devices before you get them.

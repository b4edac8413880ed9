"""The page of docs/ that the long runs write their tables into, as it is before any of them."""

BEGIN, END = "<!-- faults -->", "<!-- /faults -->"
PAGE = f"""# Reliability

What was tried to bring the exporter down, to make it say what is not so, or to have one bad part cost the
rest; and what came of it. Everything ran on a fake node: the driver's library, the kubelet and the files of
the node are acted in software, and everything above them is the real program. No cell was tried on a real
GPU, and a real driver may fail in ways that nobody thought of.

## Faults

A *cell* is one fault: what fails, how, and where. While it lasts and after it, each cell is held to the
same claims, on the page that a Prometheus would scrape:

- the program lives, and no exception is left unhandled;
- `/metrics` answers 200 within 50 ms, also while a poll waits (on a busy machine as much later as all else);
- every series of other devices is as if there were no fault, and counters go on at their pace;
- the health series tell what is wrong and whose it is, and count nothing that did not occur;
- no number is false: each sample is what is so, or is absent; memory that no container is known to use counts
  as unattributed;
- sums hold, and nothing is said to use more than there is;
- when the fault is over the page is as before after two polls at most, by itself.

What a cell *loses* is told by these words:

| outcome | meaning |
|---|---|
| nothing | the page is as before; what failed is counted, or another form of the call answered |
| its own readings | the device stays up, and lacks what the call would have told, and what is made of it |
| its GPU | `gpuslice_gpu_up` is 0 of the GPU that the call is about; its readings are gone |
| the GPU that it is a part of | a fault of one MIG device costs its GPU and the MIG devices beside it |
| the count of GPUs | collector `nvml` fails; what was read before stands until it is stale |
| all GPUs of the driver | collector `nvml` fails and all its GPUs are down; holders and GPUs of AMD's stay |

Codes are taken together by what they mean to the program: *not supported* is remembered until the driver is
opened anew, so that recovery is looked at after that; *nothing there* and *invalid argument* may mean that
a board has no such thing; *driver gone* is said of the whole driver, whatever was asked; every other code
is a failure of that one call. What is asked only when the driver is opened fails then.

The energy of a cut GPU is shared out by the use of all its parts: while that of one is not known, nobody is
given any, and it counts as unattributed.

Some answers are believed although they are codes of errors: that no newer samples are there, that a host
has no vGPU, that a GPU has no MIG mode, and that a slot for a MIG device is empty, for which drivers have
several codes. A driver that says so of what is there makes the page say so too.

Hangs ran for a 25th of the time that is said, with a patience of 0.5 s in place of 2.5 s; one function of
each kind hung as long as it says under the patience of the program. Of several parts that hang at once each
takes up the patience once, so that the poll that finds out may end after its deadline and collector `nvml`
fails once.

{BEGIN}
{END}

## Fuzzing

<!-- fuzz: begin -->
<!-- fuzz: end -->

## Long runs

<!-- soak -->
<!-- /soak -->
"""

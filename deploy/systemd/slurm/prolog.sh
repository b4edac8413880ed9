#!/bin/sh
# Prolog of Slurm, run by slurmd as root: notes the job in the file of each of its GPUs.
# A prolog that fails drains the node, so whatever goes wrong here is logged and no more.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
jobs=${GPUSLICE_JOB_MAPPING_DIR:-/run/gpuslice-exporter/jobs}

# Nobody but root may open the lock: who can open it can hold it.
note_job() {
    mkdir -p "$jobs" && (umask 077 && : >>"$jobs/.lock") && exec 9>"$jobs/.lock" && flock --timeout 5 9 || return
    for gpu in $(printf '%s' "$SLURM_JOB_GPUS" | tr ',' ' '); do
        case $gpu in *[!0-9]*) continue ;; esac
        printf '%s\n' "$SLURM_JOB_ID" >>"$jobs/$gpu" || return
    done
}

if [ -n "${SLURM_JOB_ID:-}" ] && [ -n "${SLURM_JOB_GPUS:-}" ]; then
    umask 022
    problem=$(note_job 2>&1) || logger -t gpuslice-prolog "job $SLURM_JOB_ID is not noted: $problem" || true
fi
exit 0

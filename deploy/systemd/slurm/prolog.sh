#!/bin/sh
# Slurm prolog, run by slurmd as root: adds the job to the file of each of its GPUs.
# A failing prolog drains the node, so errors here are only logged.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
jobs=${GPUSLICE_JOB_MAPPING_DIR:-/run/gpuslice-exporter/jobs}

# Only root may open the lock, so that no user can hold it.
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

#!/bin/sh
# Slurm epilog, run by slurmd as root: removes the job from the files of all GPUs.
# A failing epilog drains the node, so errors here are only logged.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
jobs=${GPUSLICE_JOB_MAPPING_DIR:-/run/gpuslice-exporter/jobs}

# Files are replaced as a whole, since the exporter may read them at any time. Only root may open the lock, so that no
# user can hold it.
forget_job() {
    (umask 077 && : >>"$jobs/.lock") && exec 9>"$jobs/.lock" && flock --timeout 5 9 || return
    for file in "$jobs"/[0-9]*; do
        [ -f "$file" ] || continue
        others=$(grep -Fvx -e "$SLURM_JOB_ID" "$file")
        if [ -n "$others" ]; then
            printf '%s\n' "$others" >"$jobs/.new" && mv "$jobs/.new" "$file" || return
        else
            rm -f "$file" || return
        fi
    done
}

if [ -n "${SLURM_JOB_ID:-}" ] && [ -d "$jobs" ]; then
    umask 022
    problem=$(forget_job 2>&1) || logger -t gpuslice-epilog "job $SLURM_JOB_ID is still noted: $problem" || true
fi
exit 0

# Two stages: one builds, and collects what runs; the image is that and nothing else. docs/image.md tells the rest.
#
# The base is pinned by tag. To pin it by content, which also makes builds repeatable:
#   docker build --build-arg PYTHON_IMAGE=python:3.13-slim-trixie@sha256:... .
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
# The time of all that is built, in seconds since 1970. `make image` gives that of the commit.
ARG SOURCE_DATE_EPOCH=315532800
# Bytecode has sets in it, whose order this settles.
ENV PYTHONHASHSEED=0 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
COPY deploy/image deploy/image
# What is installed is what the lock files name, by the hashes of its files, and nothing is compiled. A pip.conf for
# another index than the public one may be given as a secret, which stays in no layer.
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    python3 -m venv /build \
    && python3 -m venv --without-pip /opt/gpuslice \
    && /build/bin/pip install --only-binary=:all: --require-hashes --requirement deploy/image/build.lock \
    && /build/bin/pip --python /opt/gpuslice install --no-compile \
        --only-binary=:all: --require-hashes --requirement deploy/image/requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
COPY podresources podresources
# Optional parts of the package, such as kubernetes.
ARG EXTRAS=
RUN SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /build/bin/pip --python /opt/gpuslice install --no-compile --no-deps --no-index --find-links /wheels gpuslice-exporter \
    && SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} PYTHONPATH=deploy/image \
        /build/bin/python -m assemble /opt/gpuslice /image "${EXTRAS}"

FROM scratch
ARG PYTHON_IMAGE=python:3.13-slim-trixie
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpuslice-exporter" \
      org.opencontainers.image.description="Who holds which slice of which GPU, and what they use: a Prometheus exporter" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /image/ /
# For the NVIDIA container runtime: all GPUs of the node, and of the driver only what NVML needs.
ENV PATH=/opt/gpuslice/bin \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=utility \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Root, because the kubelet's sockets can be connected to by their owner only. It needs no capability:
# run it with all of them dropped and a read-only root (docs/deploy.md).
USER 0:0
EXPOSE 9836
# For engines that have no probes of their own; Kubernetes ignores it.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "from urllib.request import ProxyHandler, build_opener; build_opener(ProxyHandler({})).open('http://127.0.0.1:9836/-/healthy', timeout=4)"]
ENTRYPOINT ["gpuslice-exporter"]

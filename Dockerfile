# The exporter in a virtual environment on a slim Python, with nothing that could install more.
#
# The base is pinned by tag. To pin it by content, which also makes builds repeatable:
#   docker build --build-arg PYTHON_IMAGE=python:3.13-slim-trixie@sha256:... .
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
# Optional parts of the package, such as kubernetes.
ARG EXTRAS=
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
COPY podresources podresources
# The environment has no pip of its own; the image's installs into it.
RUN python -m venv --without-pip /opt/gpuslice \
    && python -m pip --python /opt/gpuslice install --no-cache-dir --disable-pip-version-check ".${EXTRAS:+[$EXTRAS]}" \
    # The page takes one of plotly's three copies of its JavaScript; the others are for notebooks, 10 MB.
    && rm -rf /opt/gpuslice/lib/python3.*/site-packages/plotly/labextension \
        /opt/gpuslice/lib/python3.*/site-packages/plotly/package_data/widgetbundle.js

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gpuslice-exporter" \
      org.opencontainers.image.description="Who holds which slice of which GPU, and what they use: a Prometheus exporter" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/site-packages/pip* /usr/local/lib/python3.*/ensurepip
COPY --from=build /opt/gpuslice /opt/gpuslice
ENV PATH=/opt/gpuslice/bin:$PATH
# The base ships its library without bytecode, and at run time the root is read-only: what the daemon
# imports is compiled here, once. That it can be imported is tested by the way.
RUN ["python", "-c", "import exporter.cli, exporter.demo.node"]
# For the NVIDIA container runtime: all GPUs of the node, and of the driver only what NVML needs.
ENV NVIDIA_VISIBLE_DEVICES=all \
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

# docker build -t dreamfleet .                                   for the CPU
# docker build -t dreamfleet --build-arg EXTRAS=cuda12,atari .   for NVIDIA GPUs, with extras; run with --gpus all
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE embodied.py ./
COPY dreamfleet dreamfleet
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
ARG EXTRAS=""
# OpenGL without a display, for suites that render.
RUN apt-get update && apt-get install --yes --no-install-recommends libegl1 && rm -rf /var/lib/apt/lists/*
COPY constraints.txt /tmp/
# The wheel stays: extras that are added later are installed from it.
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt \
    "dreamfleet${EXTRAS:+[$EXTRAS]} @ file://$(ls /wheels/*.whl)"
RUN useradd --create-home --uid 1000 fleet && install --directory --owner fleet /runs
USER fleet
WORKDIR /runs
VOLUME /runs
# A container that trains in /runs/NAME is healthy while its newest status.json, written every second, is fresh.
HEALTHCHECK --interval=30s --start-period=120s --retries=3 CMD ["dreamfleet", "status", "/runs"]
ENTRYPOINT ["dreamfleet"]
CMD ["doctor", "--logdir", "/runs"]

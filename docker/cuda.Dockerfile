# hotloop with a card of NVIDIA's, whose driver and container toolkit the host has:
#
#   docker build -f docker/cuda.Dockerfile -t hotloop-cuda .
#   docker run --rm --gpus all --cap-add SYS_PTRACE -v "$PWD:/work" hotloop-cuda benchmark train.py
#
# No image of CUDA is needed below it: torch brings the libraries that it was built with.
FROM python:3.11.14-slim-bookworm

# What of the driver comes into the container: to compute, and for NVML, which reads the card.
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility

# git: `hotloop compare` and `hotloop gate` check out commits. gcc: torch.compile compiles with it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /hotloop
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --disable-pip-version-check \
    -c constraints.txt '.[torch,profile,optimize,plan,plot,tensorboard]'

RUN useradd --create-home --uid 1000 hotloop && mkdir /work && chown hotloop /work
USER 1000
WORKDIR /work
ENV OMP_NUM_THREADS=1
ENTRYPOINT ["hotloop"]
CMD ["doctor"]

# hotloop on processors alone, from the root of a checkout:
#
#   docker build -f docker/cpu.Dockerfile -t hotloop .
#   docker run --rm --cap-add SYS_PTRACE -v "$PWD:/work" hotloop simplify train.py
#
# SYS_PTRACE lets py-spy look into the loop; without it `hotloop profile --time` takes another tool.
FROM python:3.11.14-slim-bookworm

# Where pip finds torch built for processors; pytorch.org names it. Without it, pip takes the build
# of its own registry, which brings several gigabytes of CUDA.
ARG TORCH_INDEX=""

# git: `hotloop compare` and `hotloop gate` check out commits. gcc: torch.compile compiles with it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc git libc6-dev \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /hotloop
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --disable-pip-version-check \
    ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    -c constraints.txt '.[torch,profile,optimize,plan,plot,tensorboard]'

RUN useradd --create-home --uid 1000 hotloop && mkdir /work && chown hotloop /work
USER 1000
WORKDIR /work
ENV OMP_NUM_THREADS=1
ENTRYPOINT ["hotloop"]
CMD ["doctor"]

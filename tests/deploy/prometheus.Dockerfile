# Prometheus from Debian's package, for machines without access to a registry. Replaces
# prom/prometheus in deploy/compose.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus && \
    rm -rf /var/lib/apt/lists/* && install -d -o nobody /prometheus
USER nobody
ENTRYPOINT ["/usr/bin/prometheus"]

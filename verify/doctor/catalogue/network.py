"""The network between the machine and a registry, an index or a model hub."""

from __future__ import annotations

from verify.doctor.entry import Entry

ENTRIES = (
    Entry(
        id="certificate-unknown",
        title="A server's certificate is not trusted here",
        layer="build",
        rank=20,
        cause="The network presents a certificate of an authority that this machine or image does not know, as "
        "behind a company's proxy, or the clock is wrong.",
        fix="Add the authority: CA_BUNDLE for `make image`, REQUESTS_CA_BUNDLE or SSL_CERT_FILE in the container, "
        "the engine's /etc/docker/certs.d for a registry; check `date`.",
        command="export SSL_CERT_FILE=/path/ca.pem REQUESTS_CA_BUNDLE=/path/ca.pem",
        text=(
            r"certificate verify failed",
            r"CERTIFICATE_VERIFY_FAILED",
            r"certificate signed by unknown authority",
            r"unable to get local issuer certificate",
            r"server certificate verification failed",
            r"certificate has expired or is not yet valid",
            r"SSL certificate problem",
        ),
        hides=("network-unreachable", "hub-unreachable", "apt-failed", "no-matching-wheel"),
    ),
    Entry(
        id="registry-limit",
        title="The image registry limits this address",
        layer="build",
        rank=21,
        cause="The registry gives no more images to this address for now.",
        fix="`docker login`, use a mirror (REGISTRY_MIRROR), wait, or let `make image` bootstrap its base without a "
        "registry.",
        command="docker login",
        text=(r"toomanyrequests", r"you have reached your (?:unauthenticated )?pull rate limit"),
        hides=("image-missing",),
    ),
    Entry(
        id="network-unreachable",
        title="The network does not reach the server",
        layer="build",
        rank=22,
        cause="A registry, a package index or a mirror cannot be reached from here: no route, no DNS, a proxy, or a "
        "server that is slow or blocked.",
        fix="Try `curl -I` to the address; set HTTP_PROXY/HTTPS_PROXY, a mirror (PIP_INDEX_URL, APT_MIRROR, "
        "REGISTRY_MIRROR) or the engine's DNS.",
        command="curl -sSI https://HOST | head -1",
        text=(
            r"temporary failure (?:in name resolution|resolving)",
            r"could not resolve host",
            r"failed to connect to \S{1,100} port \d{2,5}",
            r"couldn't connect to server",
            r"unable to access 'https?://",
            r"connection reset by peer",
            r"(?:Get|Head|Post) \"https?://\S{1,200}\":.{0,60}(?:timeout|EOF|refused|unreachable|no such host)",
            r"RPC failed; curl",
            r"could not resolve '",
            r"dial tcp: lookup \S{1,100}.{0,60}(?:no such host|i/o timeout|server misbehaving)",
            r"dial tcp \S{1,60}:443: (?:i/o timeout|connect)",
            r"TLS handshake timeout",
            r"request canceled while waiting for connection",
            r"net/http: request canceled",
            r"retrying \(Retry\(total=\d",
            r"ReadTimeoutError: HTTPSConnectionPool",
            r"failed to establish a new connection",
            r"Max retries exceeded with url: /(?:simple|whl|pypi)",
            r"cannot connect to proxy",
            r"pip.{0,40}there was a problem (?:confirming|connecting)",
            r"incomplete-download",
            r"failed to resolve reference",
            r"connection broken by 'ProtocolError",
        ),
        unless=(r"certificate verify failed", r"huggingface\.co", r"hf-mirror", r"MASTER_ADDR"),
        hides=("no-matching-wheel", "apt-failed", "image-missing", "hub-unreachable"),
    ),
    Entry(
        id="hub-unreachable",
        title="The model hub cannot be reached, or refuses",
        layer="program",
        rank=11,
        cause="The program wants to download a model or data set, and the hub cannot be reached from here or "
        "refuses the request.",
        fix="Put the files under /workspace/models and give the local path (HF_HUB_OFFLINE=1), or set HF_ENDPOINT "
        "or a proxy; for a gated model accept its licence and log in.",
        command="export HF_HUB_OFFLINE=1",
        text=(
            r"couldn't connect to '?https://huggingface\.co",
            r"couldn't connect to the hub",
            r"huggingface\.co['\"]?, port=443",
            r"LocalEntryNotFoundError",
            r"GatedRepoError",
            r"OfflineModeIsEnabled",
            r"can't load tokenizer for '\S{1,100}'\. if you were trying to load it from",
            r"we couldn't connect to '",
            r"huggingface\.co.{0,200}(?:timed out|refused|unreachable|reset)",
        ),
        fault="program",
    ),
)

"""verify.size: pairs the manifest's layers with the history and says when a size is not known."""

import io
import json
import tarfile

import pytest

from verify import size


def exported(layers, *, attestation=False):
    """An OCI layout as `docker save` streams it."""
    blobs = {}

    def put(document):
        data = json.dumps(document).encode()
        digest = f"{len(blobs):064x}"
        blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    image = put({"layers": layers})
    manifests = [image]
    if attestation:
        proof = put({"layers": []}) | {"annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
        manifests = [put({"manifests": [proof, image]})]
    blobs["index.json"] = json.dumps({"manifests": manifests}).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in blobs.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    data = buffer.getvalue()
    return size._Stream(data[i : i + 1000] for i in range(0, len(data), 1000))


def descriptor(number, kind="zstd"):
    return {"digest": f"sha256:{number}", "size": number, "mediaType": f"application/vnd.oci.image.layer.v1.tar+{kind}"}


HISTORY = [
    {"Size": 0, "CreatedBy": "CMD bash"},
    {"Size": 30_000_000, "CreatedBy": "COPY b / # buildkit"},
    {"Size": 20_000_000, "CreatedBy": "RUN /bin/sh -c make a # buildkit"},
]


@pytest.mark.parametrize("attestation", [False, True])
def test_layers_carry_compressed_and_unpacked_bytes_oldest_first(attestation):
    _, documents = size.exported_blobs(exported([descriptor(1), descriptor(2)], attestation=attestation))
    found = size.layers(size.manifest_of(documents), HISTORY)
    assert [(layer.compressed, layer.unpacked) for layer in found] == [(1, 20_000_000), (2, 30_000_000)]


def test_uncompressed_store_is_said_not_guessed():
    found = size.layers({"layers": [descriptor(1, "none"), descriptor(2)]}, HISTORY)
    assert found[0].compressed is None
    assert "not known" in size.table(found)


def test_history_that_does_not_pair_gives_no_wrong_sizes():
    found = size.layers({"layers": [descriptor(1)]}, HISTORY)
    assert (found[0].unpacked, found[0].made_by) == (0, "?")


def test_table_names_the_step_and_sums():
    text = size.table(size.layers({"layers": [descriptor(4_000_000), descriptor(6_000_000)]}, HISTORY))
    assert "make a" in text
    assert "# buildkit" not in text
    assert text.splitlines()[-1].split() == ["0.01", "GB", "0.05", "GB", "in", "all"]


def test_description_comes_from_a_container_that_is_removed():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("image.json")
        member.size = 12
        archive.addfile(member, io.BytesIO(b'{"slim": {}}'))
    removed = []

    class Client:
        containers = property(lambda self: self)

        def create(self, *_):
            return self

        def get_archive(self, path):
            assert path == "/opt/verify/image.json"
            return [buffer.getvalue()[:700], buffer.getvalue()[700:]], {}

        def remove(self, force):
            removed.append(force)

    assert size.description(Client(), "image") == {"slim": {}}
    assert removed == [True]


def test_no_manifest_is_an_error():
    with pytest.raises(ValueError, match="no image manifest"):
        size.manifest_of({"index.json": b'{"manifests": []}'})

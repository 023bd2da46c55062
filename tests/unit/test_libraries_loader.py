from pathlib import Path

import pytest

from tests.unit import elfbuilder as make
from verify import loader
from verify.loader import Search


def lib(path: Path, **what: object) -> Path:
    return make.write(path, make.shared_object(**what))  # type: ignore[arg-type]


def found(start: Path, search: Search | None = None, **loaded: Path) -> dict[str, Path]:
    result = loader.closure(start, search or Search(), loaded)
    assert result.missing == ()
    return dict(result.loaded)


def test_rpath_of_the_chain_reaches_what_its_children_need(tmp_path: Path):
    top = lib(tmp_path / "top.so", needed=("libmid.so",), rpath="$ORIGIN/a:${ORIGIN}/b")
    lib(tmp_path / "a" / "libmid.so", soname="libmid.so", needed=("libleaf.so",))
    leaf = lib(tmp_path / "b" / "libleaf.so", soname="libleaf.so")
    assert found(top)["libleaf.so"] == leaf


def test_runpath_is_not_inherited_and_switches_rpath_off(tmp_path: Path):
    top = lib(tmp_path / "top.so", needed=("libmid.so",), rpath="$ORIGIN/b", runpath="$ORIGIN/a")
    mid = lib(tmp_path / "a" / "libmid.so", soname="libmid.so", needed=("libleaf.so",))
    lib(tmp_path / "b" / "libleaf.so", soname="libleaf.so")
    result = loader.closure(top, Search())
    assert [(m.name, m.needed_by) for m in result.missing] == [("libleaf.so", mid)]


def test_library_path_wins_over_runpath_and_loses_to_rpath(tmp_path: Path):
    for folder in ("env", "own"):
        lib(tmp_path / folder / "libx.so", soname="libx.so")
    search = Search(library_path=(str(tmp_path / "env"),))
    with_rpath = lib(tmp_path / "r.so", needed=("libx.so",), rpath="$ORIGIN/own")
    with_runpath = lib(tmp_path / "u.so", needed=("libx.so",), runpath="$ORIGIN/own")
    assert found(with_rpath, search)["libx.so"].parent.name == "own"
    assert found(with_runpath, search)["libx.so"].parent.name == "env"


def test_cache_and_default_folders_come_last(tmp_path: Path):
    cached = lib(tmp_path / "cached" / "libx.so", soname="libx.so")
    lib(tmp_path / "default" / "libx.so", soname="libx.so")
    y = lib(tmp_path / "default" / "liby.so", soname="liby.so")
    top = lib(tmp_path / "top.so", needed=("libx.so", "liby.so"))
    search = Search(cache={"libx.so": str(cached)}, default=(str(tmp_path / "default"),))
    assert found(top, search)["libx.so"] == cached
    assert found(top, search)["liby.so"] == y


def test_what_is_loaded_already_is_taken_by_its_soname(tmp_path: Path):
    other = lib(tmp_path / "other.so", soname="libtorch.so")
    lib(tmp_path / "lib" / "libtorch.so", soname="libtorch.so")
    top = lib(tmp_path / "top.so", needed=("libtorch.so",), rpath="$ORIGIN/lib")
    loaded = loader.closure(top, Search(), {"libtorch.so": other}).loaded
    assert loaded["libtorch.so"] == other


def test_another_machine_is_passed_over_and_a_broken_file_is_not(tmp_path: Path):
    lib(tmp_path / "arm" / "libx.so", soname="libx.so", machine=183)
    right = lib(tmp_path / "intel" / "libx.so", soname="libx.so")
    top = lib(tmp_path / "top.so", needed=("libx.so",), rpath="$ORIGIN/arm:$ORIGIN/intel")
    assert found(top)["libx.so"] == right
    make.write(tmp_path / "bad" / "libz.so", b"this is text")
    broken = lib(tmp_path / "broken.so", needed=("libz.so",), rpath="$ORIGIN/bad")
    (miss,) = loader.closure(broken, Search()).missing
    assert miss.broken == tmp_path / "bad" / "libz.so"
    assert miss.needed_by == broken


def test_libraries_that_need_each_other_end(tmp_path: Path):
    lib(tmp_path / "liba.so", soname="liba.so", needed=("libb.so",), rpath="$ORIGIN")
    b = lib(tmp_path / "libb.so", soname="libb.so", needed=("liba.so",), rpath="$ORIGIN")
    assert set(found(b)) == {"liba.so", "libb.so"}


def test_cache_file(tmp_path: Path):
    path = make.write(tmp_path / "ld.so.cache", make.loader_cache({"libx.so.1": "/lib/libx.so.1", "liby.so": "/y"}))
    assert loader.read_cache(path) == {"libx.so.1": "/lib/libx.so.1", "liby.so": "/y"}
    assert loader.read_cache(path, 0x0A00) == {}, "entries of another machine"
    assert loader.read_cache(tmp_path / "absent") == {}
    whole = path.read_bytes()
    for length in range(len(whole)):
        cut = loader.read_cache(make.write(tmp_path / "cut", whole[:length]))
        assert set(cut) <= {"libx.so.1", "liby.so", ""}


def test_search_of_a_process(tmp_path: Path):
    preload = make.write(tmp_path / "ld.so.preload", b"/usr/local/vgpu/libvgpu.so\n")
    search = loader.present_search(
        {"LD_LIBRARY_PATH": "/a::/b", "LD_PRELOAD": "libx.so /y.so:z.so"}, tmp_path / "none", preload
    )
    assert search.library_path == ("/a", ".", "/b")
    assert search.preload == ("libx.so", "/y.so", "z.so", "/usr/local/vgpu/libvgpu.so")
    assert search.cache == {}
    assert loader.present_search({}, tmp_path / "none", tmp_path / "none").library_path == ()


def test_preloaded_objects_count_as_loaded(tmp_path: Path):
    fake = lib(tmp_path / "fake.so", soname="libnvJitLink.so.12")
    search = Search(preload=(str(fake), "/absent.so", "libabsent.so"))
    assert loader.preloaded(search) == {"libnvJitLink.so.12": fake}


@pytest.mark.parametrize("name", ["libm.so.6", "libc.so.6"])
def test_finds_the_systems_own_libraries(name: str):
    search = loader.present_search({})
    if not search.cache:
        pytest.skip("no ld.so.cache here")
    place = loader.find(name, Path("/"), (), search)
    assert isinstance(place, Path), place
    assert place.is_file()

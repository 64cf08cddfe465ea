"""Builds cukern. All metadata is in pyproject.toml; what a build does is told in docs/architecture.md."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "build_backend"))

from compile import Compilation, compile_sources, cuda_sources, link_flags  # noqa: E402

# Headers in the package: those of the C ABI, and what the text of a fused function includes (python/cukern/_fuse.py).
SHIPPED = {f"include/cukern/{name}": f"cuda/include/cukern/{name}" for name in ("cukern.h", "ops.def")}
SHIPPED |= {
    f"device/cukern/{name}": f"cuda/include/cukern/{name}"
    for name in ("ops.h", "element_type.h", "element_types.def", "scalar_types.h")
}
for folder, source in (("device/formulas", "cuda/src/formulas"), ("device/rtc", "cuda/rtc")):
    SHIPPED |= {f"{folder}/{path.name}": f"{source}/{path.name}" for path in sorted((ROOT / source).iterdir())}


class BuildExtCUDA(build_ext):
    """Routes .cu to nvcc and .cpp to the C++ compiler; what is left to setuptools is the link."""

    def build_extension(self, ext: Extension) -> None:
        import numpy

        compiler = getattr(self.compiler, "compiler_so_cxx", None) or self.compiler.compiler_so
        build = Compilation.from_environment(shlex.split(os.environ.get("CXX", "")) or compiler[:1])
        if build.toolkit is not None:
            print(f"cukern: {build.toolkit.nvcc}, found by {build.toolkit.found_by}", flush=True)
        extra = [f"-D{name}={value}" for name, value in ext.define_macros]
        extra.append(f'-DCUKERN_VERSION="{self.distribution.get_version()}"')
        for folder in [*self.include_dirs, numpy.get_include()]:
            extra += ["-isystem", folder]
        sources = [*cuda_sources(build.toolkit is not None), *sorted((ROOT / "ext").rglob("*.cpp"))]
        objects = compile_sources(build, sources, extra, bool(self.force))
        ext.sources = []
        ext.extra_objects = [str(path) for path in objects]
        ext.depends = [*ext.extra_objects, str(ROOT / "ext/exports.map")]
        ext.extra_link_args = link_flags(build) + os.environ.get("CUKERN_LDFLAGS", "").split()
        self.force = True  # objects of another configuration may be older than the module that is there
        super().build_extension(ext)
        self._write_stub(Path(self.get_ext_fullpath(ext.name)))

    def _write_stub(self, module: Path) -> None:
        """Make the type stub from the table that the module holds, beside it."""
        if os.environ.get("CUKERN_STUBS", "1") == "1":
            subprocess.run([sys.executable, ROOT / "build_backend/stubs.py", module], check=True)

    def copy_extensions_to_source(self) -> None:
        """For editable installs: the stub goes where the module goes."""
        super().copy_extensions_to_source()
        for ext in self.extensions:
            stub = Path(self.get_ext_fullpath(ext.name)).parent / "_cukern.pyi"
            built = Path(self.build_lib, *ext.name.split(".")[:-1], "_cukern.pyi")
            if built.exists() and built != stub:
                shutil.copyfile(built, stub)


def _without_comments(text: str) -> str:
    """Return C++ without the lines that are comments alone."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("//"))


class BuildPyHeaders(build_py):
    """Ships headers with the package, and nothing that an earlier build left behind."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(Path(self.build_lib, "cukern"), ignore_errors=True)
        super().run()
        if not self.editable_mode:
            for name, source in SHIPPED.items():
                target = Path(self.build_lib, "cukern", name)
                target.parent.mkdir(parents=True, exist_ok=True)
                text = (ROOT / source).read_text()
                # They are for the compiler alone, and the wheel is full.
                target.write_text(_without_comments(text) if name.startswith("device/") else text)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        target = Path(self.build_lib, "cukern")
        return super().get_outputs(include_bytecode) + [str(target / name) for name in SHIPPED]


setup(
    ext_modules=[
        Extension(
            "cukern._cukern",
            sources=["ext/cukernmodule.cpp"],
            language="c++",
            py_limited_api=True,
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    cmdclass={"build_ext": BuildExtCUDA, "build_py": BuildPyHeaders},
)

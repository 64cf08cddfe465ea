"""`register`: a user's RawKernel as an operation of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import RawKernel, _cukern
from ._fallback import begin_writing

_VALUES = ("int", "float", "bool")
_libraries: list[Any] = []  # what they define goes with them


def _check_schema(text: str) -> Any:
    """Return the parsed schema; ValueError for what a kernel cannot be called by."""
    schema = torch._C.parse_schema(text)
    if "::" not in schema.name:
        raise ValueError(f"register: the schema {text!r} has no namespace; write it as mylib::{schema.name}(...)")
    for argument in schema.arguments:
        if str(argument.type) not in ("Tensor", *_VALUES):
            raise ValueError(
                f"register: {argument.name} is of type {argument.type}; expected Tensor, int, float or bool"
            )
    for result in schema.returns:
        if str(result.type) != "Tensor" or result.alias_info is not None:
            raise ValueError(f"register: {text!r} returns a {result.type}; expected new tensors alone")
    if not any(str(argument.type) == "Tensor" for argument in schema.arguments):
        raise ValueError(f"register: {text!r} has no tensor among its arguments")
    if not schema.returns and not any(_is_written(argument) for argument in schema.arguments):
        raise ValueError(f"register: {text!r} has no result; mark what the kernel writes to, as in Tensor(a!) out")
    return schema


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _make_like_first(schema: Any) -> Callable[..., Any]:
    """Return the fake kernel of results that are like the first tensor, packed."""

    def fake(*values: Any, **keywords: Any) -> Any:
        named = (keywords.get(x.name) for x in schema.arguments[len(values) :])
        first = next(x for x in (*values, *named) if isinstance(x, Tensor))
        made = tuple(torch.empty(first.shape, dtype=first.dtype, device=first.device) for _ in schema.returns)
        return made if len(made) > 1 else made[0] if made else None

    return fake


def _kernel(name: str, schema: Any, kernel: Any, make: Callable[..., Any], size_argument: bool) -> Callable[..., Any]:
    """Return the implementation: makes the results, launches, returns them."""
    parameters = schema.arguments
    tensors = [i for i, x in enumerate(parameters) if str(x.type) == "Tensor"]
    written = [i for i in tensors if _is_written(parameters[i])]
    chooses_grid = isinstance(kernel, RawKernel)

    def run(*given: Any, **keywords: Any) -> Any:
        arguments = [*given, *(keywords.get(x.name, x.default_value) for x in parameters[len(given) :])]
        made = make(*given, **keywords)
        results = made if isinstance(made, tuple) else () if made is None else (made,)
        for i in written:
            if not arguments[i].is_contiguous():
                raise RuntimeError(
                    f"{name}: {parameters[i].name} is written to and not contiguous; the kernel needs it so"
                )
            begin_writing(name, (), arguments[i])
        for i in tensors:  # as the kernel's pointers reach elements: packed, and no part of a gradient's record
            x = arguments[i]
            if x.requires_grad or not x.is_contiguous():
                arguments[i] = x.detach().contiguous()
        size = (results[0] if results else arguments[written[0]]).numel()
        launch = kernel.over(size) if chooses_grid else kernel
        launch(*arguments, *results, size) if size_argument else launch(*arguments, *results)
        return made

    return run


def _register_in_shim(full: str, schema: Any, kernel: Any, size_argument: bool) -> bool:
    """Have the C shim call the kernel without Python; False where it can't."""
    from . import shim_missing

    if shim_missing is not None:
        return False
    letters = {"Tensor": "t", "int": "i", "float": "f", "bool": "b"}
    arguments = "".join("w" if _is_written(x) else letters[str(x.type)] for x in schema.arguments)
    namespace, _, name = full.partition("::")
    return _cukern._register_torch_raw_kernel(namespace, name, kernel, arguments, len(schema.returns), size_argument)


def _save_all(ctx: Any, inputs: Sequence[Any], output: Any, keyword_only_inputs: dict[str, Any] | None = None) -> None:
    results = output if isinstance(output, tuple) else () if output is None else (output,)
    ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)), *results)
    ctx.values = tuple(x for x in (*inputs, *(keyword_only_inputs or {}).values()) if not isinstance(x, Tensor))


def register(
    kernel: Any,
    schema: str,
    *,
    fake: Callable[..., Any] | None = None,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., None] | None = None,
    size_argument: bool = False,
) -> Any:
    """Make a kernel an operation of torch, for tensors on a GPU.

    The kernel gets the arguments of the schema in order, a pointer for each tensor, and then a pointer for each
    result. It is launched on torch's current stream. Tensors that it reads are made contiguous before; those that it
    writes to have to be.

    Parameters
    ----------
    kernel : RawKernel, or one with its grid and block
        A RawKernel is launched as ``kernel.over(n)``, where n is the number of elements of the first result, or else
        of the first tensor that is written to; ``kernel[grid, block]`` as it says.
    schema : str
        As torch writes it, with a namespace: ``"mylib::saxpy(float a, Tensor x, Tensor y) -> Tensor"``. Arguments are
        tensors, ints, floats and bools; ``Tensor(a!)`` is written to.
    fake : callable, optional
        Returns empty results from the arguments, as `torch.library.register_fake` describes it; the operation takes
        the memory of its results from it, too, and every call enters Python for that. By default each result is like
        the first tensor, packed.
    backward : callable, optional
        ``backward(ctx, *gradients)``, as `torch.library.register_autograd` describes it.
    setup_context : callable, optional
        Saves what `backward` needs. By default ``ctx.saved_tensors`` has the tensors among the arguments and the
        results, and ``ctx.values`` the other arguments.
    size_argument : bool
        Whether the kernel has one more parameter, the last: the number n of elements.

    Returns
    -------
    torch._ops.OpOverload
        ``torch.ops.mylib.saxpy.default``.

    Raises
    ------
    ValueError
        The schema has no namespace, no tensor, no result, or a type that no kernel takes.
    TypeError
        `kernel` cannot be called.
    """
    parsed = _check_schema(schema)
    if not callable(kernel):
        raise TypeError(f"register: kernel is of type {type(kernel).__name__}; expected a RawKernel")
    namespace, _, name = parsed.name.partition("::")
    overload = parsed.overload_name
    full = f"{parsed.name}.{overload}" if overload else parsed.name
    make = fake if fake is not None else _make_like_first(parsed)
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(schema.partition("::")[2], tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_fake(full, make, lib=library)
    if backward is not None:
        torch.library.register_autograd(
            full, backward, setup_context=setup_context if setup_context is not None else _save_all, lib=library
        )
    # At the end: what the shim registers stays, whatever else fails.
    if fake is not None or not _register_in_shim(full, parsed, kernel, size_argument):
        library.impl(full.partition("::")[2], _kernel(parsed.name, parsed, kernel, make, size_argument), "CUDA")
    _libraries.append(library)
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")

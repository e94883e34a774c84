"""Being told of the calls of modules, with nothing on the modules."""

import ast
import inspect
import itertools
import textwrap
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import nn
from torch._C._dynamo.eval_frame import get_eval_frame_callback

Before = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]
After = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Any], None]


@final
class Calls:
    """Tells of the calls of modules: nothing is registered on a module, nor on all of them.

    Hooks on modules are noticed: fused paths of torch look for them, compiled code guards on their number, copies and
    files of a model carry them along. Here the code of `nn.Module.__call__` itself is another one while anybody is
    told, and it is torch's own again afterwards. The code and not the function: torch's compiler takes a short cut
    where the function is the one it knows, and so never sees what this one does. Where the compiler did read through it
    (a class with a `__call__` of its own that calls that of `nn.Module`), compiled code guards on it: then it stays.

    Nobody is told inside a region that is compiled, traced or exported.

    Example:
        >>> net, seen = nn.Linear(2, 1), []
        >>> leave = CALLS.before(net, lambda module, args, kwargs: seen.append(args[0].shape))
        >>> _ = net(torch.ones(3, 2))
        >>> leave()
        >>> _ = net(torch.ones(4, 2))
        >>> seen
        [torch.Size([3, 2])]
    """

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}
        """By the `id` of a module, and by 0 for all of them."""
        self._keys = itertools.count()
        self._holds: set[int] = set()
        self._stays = False
        self._function: Any = nn.Module._wrapped_call_impl
        self._torch_code: types.CodeType = self._function.__code__
        self._call = types.FunctionType(self._torch_code, self._function.__globals__, self._function.__name__)
        self._code: types.CodeType | None = None
        names = {"told": self._told, "tell": self._tell, "call": self._call, "note": self._noting()}
        names |= {"is_compiling": torch.compiler.is_dynamo_compiling, "compiler": get_eval_frame_callback}
        self._names = {f"_sonde_{name}": value for name, value in names.items()}

    def before(self, module: nn.Module, function: Before) -> Callable[[], None]:
        """Call `function(module, args, kwargs)` before each call of the module; what to call to end that."""
        return self._add(module, "befores", function)

    def after(self, module: nn.Module, function: After) -> Callable[[], None]:
        """Call `function(module, args, kwargs, output)` after each call of the module; what to call to end that."""
        return self._add(module, "afters", function)

    def after_all(self, function: After) -> Callable[[], None]:
        """Call `function(module, args, kwargs, output)` after each call of any module; what to call to end that."""
        return self._add(None, "afters", function)

    def around(self, module: nn.Module, enter: Before, leave: Callable[[nn.Module], None]) -> Callable[[], None]:
        """Call these as close to each call of the module as can be, `leave` also where the call ends in an exception.

        Nothing else of ours comes in between.
        """
        return self._add(module, "arounds", (enter, leave))

    def around_all(self, enter: Before, leave: Callable[[nn.Module], None], after: After) -> Callable[[], None]:
        """Call these around the calls of all modules, `leave` also where one ends in an exception, before `after`."""
        undo = self._add(None, "arounds", (enter, leave)), self.after_all(after)

        def leave_all() -> None:
            for one in undo:
                one()

        return leave_all

    def hold(self) -> Callable[[], None]:
        """Have the code in place though nobody need be told, so that what is compiled meanwhile stays valid later."""
        key = next(self._keys)
        self._holds.add(key)
        self._begin()

        def release() -> None:
            self._holds.discard(key)
            self._end()

        return release

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Tell nobody of the calls inside."""
        told = dict(self._told)
        self._told.clear()
        try:
            yield
        finally:
            self._told.update(told)

    def forget(self, modules: Iterable[nn.Module]) -> None:
        """Tell nobody any more of these modules."""
        for module in modules:
            self._told.pop(id(module), None)
        self._end()

    def __contains__(self, module: nn.Module) -> bool:
        told = self._told.get(id(module))
        return told is not None and told.is_of(module)

    def _add(self, module: nn.Module | None, kind: str, function: Any) -> Callable[[], None]:
        place, key = 0 if module is None else id(module), next(self._keys)
        told = self._told.get(place)
        if told is None or not told.is_of(module):
            told = self._told[place] = _Told(module)
        functions: dict[int, Any] = getattr(told, kind)
        functions[key] = function
        self._begin()

        def leave() -> None:
            functions.pop(key, None)
            if told.is_idle and self._told.get(place) is told:
                del self._told[place]
            self._end()

        return leave

    def _begin(self) -> None:
        if self._function.__code__ is self._torch_code:
            self._code = self._code or _telling(self._function)
            self._function.__globals__.update(self._names)
            self._function.__code__ = self._code

    def _end(self) -> None:
        if not (self._told or self._holds or self._stays) and self._function.__code__ is self._code:
            self._function.__code__ = self._torch_code

    def _noting(self) -> Callable[[], bool]:
        def note() -> bool:
            self._stays = True
            return True

        # As `torch.compiler.assume_constant_result` has it: called where the compiler reads it, and not compiled.
        note._dynamo_marked_constant = True  # type: ignore[attr-defined]
        return note

    def _tell(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a module, and tell whoever is to be told."""
        found = (self._told.get(0), self._told.get(id(module)))
        places = [told for told in found if told is not None and told.is_of(module)]
        if not places or _is_traced():
            return self._call(module, *args, **kwargs)
        for place in places:
            place.tell("befores", module, args, kwargs)
        entered: list[Callable[[nn.Module], None]] = []
        try:
            for enter, leave in [pair for place in places for pair in place.arounds.values()]:
                entered.append(leave)
                enter(module, args, kwargs)
            output = self._call(module, *args, **kwargs)
        finally:
            for leave in reversed(entered):
                leave(module)
        for place in places:
            place.tell("afters", module, args, kwargs, output)
        return output


@final
class _Told:
    """Who is told of the calls of a module, each by a number that grows."""

    def __init__(self, module: nn.Module | None) -> None:
        self._module = None if module is None else weakref.ref(module)
        self.befores: dict[int, Before] = {}
        self.afters: dict[int, After] = {}
        self.arounds: dict[int, tuple[Before, Callable[[nn.Module], None]]] = {}

    def is_of(self, module: nn.Module | None) -> bool:
        """Whether it is about this one, and not about one that was at the same place in memory."""
        return self._module is None or self._module() is module

    @property
    def is_idle(self) -> bool:
        return not (self.befores or self.afters or self.arounds)

    def tell(self, kind: str, *event: Any) -> None:
        """Tell everyone, those too who come while others are told: for the iteration that begins with this call."""
        functions: dict[int, Callable[..., None]] = getattr(self, kind)
        last = -1
        while fresh := [key for key in functions if key > last]:
            for last in fresh:
                if last in functions:
                    functions[last](*event)


def _is_traced() -> bool:
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or torch.fx._symbolic_trace.is_fx_symbolic_tracing()
    )


# Where a compiler waits for the next call of a function, to compile it, that must not be one of ours.
_FIRST = """
if _sonde_is_compiling():
    _sonde_note()
elif (id(self) in _sonde_told or 0 in _sonde_told) and _sonde_compiler() is None:
    return _sonde_tell(self, args, kwargs)
"""


def _telling(function: Any) -> types.CodeType:
    """The code of `nn.Module.__call__` as torch has it, but that it tells first.

    It is of torch's file, by which the compiler knows that it is not to be compiled by itself. Most calls are of
    modules of which nobody is told: calling torch's own code from one of ours would cost them three times as much, and
    is done only where torch was installed without its sources.
    """
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError:
        source = f"def {function.__name__}(self, *args, **kwargs):\n    return _sonde_call(self, *args, **kwargs)"
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    tree.body[:0] = ast.parse(_FIRST).body
    module = ast.increment_lineno(ast.Module([tree], []), function.__code__.co_firstlineno - 1)
    compiled = compile(module, function.__code__.co_filename, "exec")
    return next(part for part in compiled.co_consts if isinstance(part, types.CodeType))


CALLS = Calls()
"""That of this process."""

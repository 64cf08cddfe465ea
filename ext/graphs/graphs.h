// cukern.Graph, and cukern.capture that makes one.
#pragma once

#include "base/module_state.h"

namespace cukern::py {

bool add_graph_type(PyObject *module, ModuleState &state) noexcept;

}  // namespace cukern::py

// The parameters of Array's methods, which their docstrings show and their calls are parsed by.
#pragma once

#define CUKERN_ARRAY_NAMESPACE "($self, /, *, api_version=None)"
#define CUKERN_ARRAY_SQUEEZE "($self, /, axis=None)"
#define CUKERN_ARRAY_GET "($self, /, *, out=None, stream=None, blocking=True)"
#define CUKERN_ARRAY_FILL "($self, /, value, *, stream=None)"
#define CUKERN_ARRAY_ASTYPE "($self, /, dtype, *, copy=True, stream=None)"
#define CUKERN_ARRAY_COPY "($self, /, order='C', *, stream=None)"
#define CUKERN_ARRAY_DLPACK "($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)"
#define CUKERN_ARRAY_ARRAY "($self, /, dtype=None, copy=None)"

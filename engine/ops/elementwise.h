/// Operations that treat every number, or every row, on its own: residual sum, SwiGLU, row selection.
#pragma once

#include "engine/autograd/tape.h"
#include "engine/fsdp/parameter.h"

namespace troupe::engine {

/// y = a + b.  da += dy, db += dy.
Variable Add(Tape& tape, const Variable& a, const Variable& b);

/// y = silu(gate) up, silu(z) = z / (1 + e^-z).
///
/// Saves   gate, up
/// Source  Shazeer 2020, arXiv:2002.05202
Variable SwiGlu(Tape& tape, const Variable& gate, const Variable& up);

/// y[n] = x[rows[n]].  dx[rows[n]] += dy[n].
Variable SelectRows(Tape& tape, const Variable& x, std::vector<int32_t> rows);

/// y[n] = table[ids[n]].  dtable[ids[n]] += dy[n].
///
/// Shapes  table: [V, D]; y: [N, D]
Variable Embedding(Tape& tape, Parameter& table, std::vector<int32_t> ids);

}  // namespace troupe::engine

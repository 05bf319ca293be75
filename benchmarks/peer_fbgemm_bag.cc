// FBGEMM's generated EmbeddingBag kernels, and its sparse Adagrad; indices and offsets of 64 bits.
#include <cstring>
#include <functional>

#include "bag_bench.h"
#include "fbgemm/Fbgemm.h"
#include "fbgemm/FbgemmEmbedding.h"

namespace {
using namespace fbgemm;
constexpr int kPrefetch = 16;

struct State {
  const bag_problem* p;
  EmbeddingSpMDMKernelSignature<float, int64_t, int64_t>::Type f32;
  EmbeddingSpMDMKernelSignature<float16, int64_t, int64_t>::Type half;
  EmbeddingSpMDMKernelSignature<uint8_t, int64_t, int64_t>::Type bytes;
  SparseAdaGradSignature<int64_t>::Type adagrad;
};

void* prepare(const bag_problem* p, const char* isa) {
  if (isa && !strcmp(isa, "avx2")) fbgemmForceIsa(inst_set_t::avx2);
  if (p->threads != 1 || p->out != OCTET_F32 || p->mode == OCTET_MAX || p->mode == OCTET_NONE) {
    if (!p->update) return nullptr;
  }
  auto* s = new State{p, {}, {}, {}, {}};
  const bool w = p->weights != 0, mean = p->mode == OCTET_MEAN, position = p->weights == OCTET_WEIGHT_POSITION;
  if (p->update) {
    if (p->type != OCTET_F32) { delete s; return nullptr; }
    s->adagrad = GenerateSparseAdaGrad<int64_t>(p->dim, true, kPrefetch);
    return s;
  }
  switch (p->type) {
    case OCTET_F32: s->f32 = GenerateEmbeddingSpMDM<float, int64_t, int64_t>(p->dim, w, mean, kPrefetch, position); break;
    case OCTET_F16: s->half = GenerateEmbeddingSpMDM<float16, int64_t, int64_t>(p->dim, w, mean, kPrefetch, position); break;
    case OCTET_U8: s->bytes = GenerateEmbeddingSpMDM<uint8_t, int64_t, int64_t>(p->dim, w, mean, kPrefetch, position); break;
    case OCTET_U4: s->bytes = GenerateEmbeddingSpMDMNBit<int64_t, int64_t>(4, p->dim, w, mean, kPrefetch, position); break;
    case OCTET_U2: s->bytes = GenerateEmbeddingSpMDMNBit<int64_t, int64_t>(2, p->dim, w, mean, kPrefetch, position); break;
    default: delete s; return nullptr;
  }
  return s;
}

void run(void* x, int set) {
  auto* s = static_cast<State*>(x);
  const bag_problem* p = s->p;
  for (int t = 0; t < p->tables; t++) {
    const int64_t from = p->first[static_cast<int64_t>(set) * p->tables + t], count = bag_count(p, set, t);
    const int64_t* indices = p->indices + from;
    const int64_t* offsets = p->offsets + (static_cast<int64_t>(set) * p->tables + t) * (p->batch + 1);
    const float* weights = p->weights ? p->each + (p->weights == OCTET_WEIGHT_EACH ? from : 0) : nullptr;
    auto* out = reinterpret_cast<float*>(p->result) + t * p->batch * p->dim;
    if (s->adagrad)
      s->adagrad(static_cast<int>(count), p->rows * p->dim, reinterpret_cast<float*>(p->table[t]), p->grad, p->state, indices, 1e-8f, 0.01f, 0, nullptr, 0);
    else if (s->f32) s->f32(p->batch, count, p->rows, reinterpret_cast<float*>(p->table[t]), indices, offsets, weights, out);
    else if (s->half) s->half(p->batch, count, p->rows, reinterpret_cast<float16*>(p->table[t]), indices, offsets, weights, out);
    else s->bytes(p->batch, count, p->rows, p->table[t], indices, offsets, weights, out);
  }
}

void close_state(void* x) { delete static_cast<State*>(x); }
}  // namespace

extern "C" const bag_peer bag_peer_fbgemm = {"fbgemm", prepare, run, close_state};

// FBGEMM's acc32 path: B packed beforehand, A packed in the call, s32 or requantized u8 out; and its f32 and f16 weights.
#include <cstring>
#include <memory>
#include <vector>

#include "bench.h"
#include "fbgemm/Fbgemm.h"
#include "fbgemm/FbgemmFP16.h"
#include "fbgemm/FbgemmFP32.h"

namespace {
using namespace fbgemm;

struct State {
  const problem* p;
  std::unique_ptr<PackBMatrix<int8_t>> b;
  std::vector<int32_t> buffer, sums;
  std::vector<float> multipliers;
  std::unique_ptr<PackedGemmMatrixFP16> half;
  std::unique_ptr<PackedGemmMatrixFP32> single;
};

const char* open_fbgemm(const char* isa) {
  if (isa && !strcmp(isa, "avx2")) fbgemmForceIsa(inst_set_t::avx2);
  return nullptr;
}

const char* version() { return "source build"; }

void* prepare_float(const problem* p) {
  if (p->a != OCTET_F32 || p->c != OCTET_F32 || p->bias || p->relu || p->chain[0].kind) return nullptr;
  auto* s = new State{p, nullptr, {}, {}, {}, nullptr, nullptr};
  if (p->b == OCTET_F32) s->single = std::make_unique<PackedGemmMatrixFP32>(matrix_op_t::Transpose, p->k, p->n, 1.0f, p->fb);
  else if (p->b == OCTET_F16) s->half = std::make_unique<PackedGemmMatrixFP16>(matrix_op_t::Transpose, p->k, p->n, 1.0f, p->fb);
  else { delete s; return nullptr; }
  return s;
}

void* prepare(const problem* p) {
  if (p->floating && p->threads == 1 && p->m && p->n && p->k) return prepare_float(p);
  if (p->a != OCTET_U8 || p->threads != 1 || !p->m || !p->n || !p->k) return nullptr;
  if (p->c != OCTET_U8 && (p->c != OCTET_S32 || p->bias || p->relu)) return nullptr;
  auto* s = new State{p, nullptr, {}, {}, {}, nullptr, nullptr};
  s->b = std::make_unique<PackBMatrix<int8_t>>(matrix_op_t::Transpose, p->k, p->n, p->pb, p->k);
  s->buffer.resize(p->m * p->n);
  s->sums.resize(p->n);
  s->multipliers.resize(p->n);
  for (int64_t j = 0; j < p->n; j++) {
    for (int64_t q = 0; q < p->k; q++) s->sums[j] += p->pb[j * p->k + q];
    s->multipliers[j] = p->scales[j] * p->scale_a / p->scale_c;
  }
  return s;
}

void run(void* x) {
  auto* s = static_cast<State*>(x);
  const problem* p = s->p;
  if (s->half) {
    cblas_gemm_compute(matrix_op_t::NoTranspose, p->m, p->fa, *s->half, 0.0f, static_cast<float*>(p->pc), 0, 1);
    return;
  }
  if (s->single) {
    cblas_gemm_compute(matrix_op_t::NoTranspose, p->m, p->fa, *s->single, 0.0f, static_cast<float*>(p->pc), 0, 1);
    return;
  }
  PackAMatrix<uint8_t> a(matrix_op_t::NoTranspose, p->m, p->k, static_cast<const uint8_t*>(p->pa), p->k);
  if (p->c == OCTET_S32) {
    DoNothing<int32_t, int32_t> nothing{};
    memCopy<> out(nothing);
    auto* c = static_cast<int32_t*>(p->pc);
    fbgemmPacked(a, *s->b, c, c, p->n, out, 0, 1);
    return;
  }
  DoNothing<> nothing{};
  const int32_t* bias = p->bias ? p->pbias : nullptr;
  static const int32_t zero_b = 0;
  auto finish = [&](auto out) {
    fbgemmPacked(a, *s->b, static_cast<uint8_t*>(p->pc), s->buffer.data(), p->n, out, 0, 1);
  };
  std::vector<int32_t> zeros;
  if (p->relu)
    finish(ReQuantizeOutput<true, QuantizationGranularity::OUT_CHANNEL>(nothing, s->multipliers.data(), p->zero_c, p->zero_a,
        (zeros.assign(p->n, 0), zeros.data()), nullptr, s->sums.data(), bias, p->n));
  else
    finish(ReQuantizeOutput<false, QuantizationGranularity::TENSOR>(nothing, s->multipliers.data(), p->zero_c, p->zero_a, &zero_b,
        nullptr, s->sums.data(), bias, p->n));
}

void close_state(void* x) { delete static_cast<State*>(x); }
}  // namespace

extern "C" const peer peer_fbgemm = {"fbgemm", false, open_fbgemm, version, prepare, run, close_state};

// The C face of Google Benchmark: one function in, the median of its repetitions out.
#include <benchmark/benchmark.h>

#include "bench.h"

namespace {
// Keeps the figure and prints nothing: the reports are octet-bench's own.
struct Keep : benchmark::BenchmarkReporter {
  double median = 0;
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& r : runs)
      if (r.run_type == Run::RT_Aggregate && r.aggregate_name == "median") median = r.GetAdjustedRealTime();
  }
};
}  // namespace

extern "C" double benchmark_ns(const char* name, call_fn f, void* x, double seconds) {
  benchmark::ClearRegisteredBenchmarks();
  benchmark::RegisterBenchmark(name, [f, x](benchmark::State& state) {
    for (auto _ : state) f(x);
  })->MinTime(seconds)->Repetitions(5)->ReportAggregatesOnly()->Unit(benchmark::kNanosecond)->UseRealTime();
  Keep keep;
  benchmark::RunSpecifiedBenchmarks(&keep);
  return keep.median;
}

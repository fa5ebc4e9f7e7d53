// Builder, reader and the strided search against the exhaustive one, over more than one span.
#include <unistd.h>

#include <filesystem>
#include <random>
#include <string>

#include "errors.hpp"
#include "index/builder.hpp"
#include "search/searcher.hpp"
#include "tests/check.hpp"

namespace ralm {
namespace {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "ralm-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

// Words by a law like Zipf's: word w with probability near 1 / w.
std::string random_text(std::mt19937& rng, std::size_t num_words) {
  std::string text;
  for (std::size_t i = 0; i < num_words; ++i) {
    const double u = (static_cast<double>(rng() % 1000000) + 1) / 1000000.0;
    text += "w" + std::to_string(static_cast<int>(1 / u) % 5000) + "z ";
  }
  return text;
}

void build(const std::filesystem::path& out, const std::filesystem::path& work,
           std::size_t num_passages, std::size_t num_words) {
  IndexBuilder builder({2, 0, work});
  std::mt19937 rng(6);
  for (std::size_t i = 0; i < num_passages; ++i) {
    const std::string text = random_text(rng, num_words);
    const std::string_view view = text;
    builder.add({&view, 1});
  }
  CHECK(builder.finish(out).num_passages == num_passages);
}

bool same(const std::vector<QueryResult>& a, const std::vector<QueryResult>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].hits.size() != b[i].hits.size()) return false;
    for (std::size_t j = 0; j < a[i].hits.size(); ++j) {
      const Hit& left = a[i].hits[j];
      const Hit& right = b[i].hits[j];
      if (left.passage != right.passage || left.score != right.score) return false;
    }
  }
  return a.size() == b.size();
}

TEST(strided_equals_exhaustive_over_two_spans) {
  const TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "index.bin";
  const std::size_t num_passages = kSpanSize + 5000;
  build(path, directory.path(), num_passages, 4);
  const IndexReader index(path);
  index.verify();
  const Searcher searcher(index, {0.9F, 0.4F});
  std::mt19937 rng(7);
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) texts.push_back(random_text(rng, 12));
  const std::vector<std::string_view> queries(texts.begin(), texts.end());
  std::vector<std::uint8_t> excluded(num_passages, 0);
  for (std::size_t i = 0; i < num_passages; i += 3) excluded[i] = 1;
  for (const std::size_t k : {1UL, 16UL, 100UL}) {
    SearchRequest request{queries, k, {}, 2, SearchMethod::kStrided};
    SearchRequest oracle{queries, k, {}, 1, SearchMethod::kExhaustive};
    CHECK(same(searcher.search(request), searcher.search(oracle)));
    request.excluded = oracle.excluded = excluded;
    CHECK(same(searcher.search(request), searcher.search(oracle)));
  }
}

Lanes random_lanes(std::mt19937& rng) {
  Lanes lanes{};
  for (auto& lane : lanes.of) lane = static_cast<std::uint16_t>(rng() % 3 == 0 ? rng() : rng() % 9);
  return lanes;
}

void compare_kernels(const Kernel& fast, const Kernel& slow) {
  std::mt19937 rng(8);
  for (int round = 0; round < 200; ++round) {
    std::vector<Impact> impacts(rng() % 300);
    for (auto& impact : impacts) {
      impact = {static_cast<std::uint16_t>(rng() % kRangeSize * kOffsetScale),
                static_cast<std::uint16_t>(rng())};
    }
    const Lanes weights = random_lanes(rng);
    const Lanes extra = random_lanes(rng);
    Lanes cuts = random_lanes(rng);
    for (auto& cut : cuts.of) cut = static_cast<std::uint16_t>(cut | 0x4000);
    const Slice slice{impacts.data(), impacts.data() + impacts.size(), &weights};
    std::vector<Lanes> sums[2] = {std::vector<Lanes>(kRangeSize), std::vector<Lanes>(kRangeSize)};
    Lanes highest[2] = {};
    std::vector<std::uint16_t> found[2];
    const Kernel* kernels[2] = {&fast, &slow};
    for (int i = 0; i < 2; ++i) {
      kernels[i]->accumulate(&slice, 1, sums[i].data(), highest[i]);
      found[i].resize(kRangeSize + 1);
      found[i].resize(kernels[i]->scan(sums[i].data(), kRangeSize, extra, cuts, found[i].data()));
      const std::uint16_t maxima[2] = {12345, 65535};
      kernels[i]->add_bounds(maxima, 2, weights, sums[i].data());
    }
    CHECK(std::memcmp(sums[0].data(), sums[1].data(), kRangeSize * sizeof(Lanes)) == 0);
    CHECK(std::memcmp(&highest[0], &highest[1], sizeof(Lanes)) == 0);
    CHECK(found[0] == found[1]);
    CHECK(fast.reached(sums[0][0], extra, cuts) == slow.reached(sums[0][0], extra, cuts));
  }
}

TEST(vector_kernels_equal_the_generic_one) {
  std::printf("     best kernel: %s\n", best_kernel().name);
  compare_kernels(best_kernel(), generic_kernel());
}

TEST(failures_of_workers_reach_the_caller) {
  const TemporaryDirectory directory;
  IndexBuilder builder({1, 0, directory.path()});
  const std::string_view bad = "ok \xFF";
  bool refused = false;
  try {
    builder.add({&bad, 1});
  } catch (const InputFault& fault) {
    refused = std::string(fault.what()).find("passage row 0: byte 3") != std::string::npos;
  }
  CHECK(refused);
}

}  // namespace
}  // namespace ralm

#include "search/searcher.hpp"

#include <algorithm>
#include <array>

#include "parallel.hpp"
#include "search/order.hpp"

namespace ralm {

namespace {

// Decoded lists a thread keeps: all 41,866,353 postings of 859,350 Wikipedia passages would take
// 250 MB.
constexpr std::size_t kCacheBytes = std::size_t{256} << 20;
// Groups a thread takes at a time: neighbours share terms, so their lists are in its cache.
constexpr std::size_t kGroupsPerTask = 8;

}  // namespace

// A worker for the length of one scope.
class Searcher::Lease {
 public:
  explicit Lease(const Searcher& searcher) : searcher_(&searcher) {
    const std::scoped_lock lock(searcher.mutex_);
    if (!searcher.idle_.empty()) {
      worker_ = std::move(searcher.idle_.back());
      searcher.idle_.pop_back();
    } else {
      worker_ = std::make_unique<Worker>(
          Worker{StridedSearch(searcher.index_, searcher.bm25_, kCacheBytes),
                 ExhaustiveSearch(searcher.index_, searcher.bm25_)});
    }
  }
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease() {
    if (!worker_) return;
    const std::scoped_lock lock(searcher_->mutex_);
    searcher_->idle_.push_back(std::move(worker_));
  }
  [[nodiscard]] Worker& operator*() const noexcept { return *worker_; }

 private:
  const Searcher* searcher_;
  std::unique_ptr<Worker> worker_;
};

Searcher::Searcher(const IndexReader& index, Bm25Parameters parameters)
    : index_(index), bm25_(parameters, index.header().num_nonempty, index.header().num_tokens) {}

std::vector<QueryResult> Searcher::search(const SearchRequest& asked) const {
  SearchRequest request = asked;
  request.k = std::clamp<std::size_t>(asked.k, 1, std::max<std::size_t>(1, index_.num_passages()));
  const std::size_t num_queries = request.queries.size();
  std::vector<Query> queries(num_queries);
  parallel_for(num_queries, request.num_threads, [&] {
    return [&](std::size_t i) { queries[i] = parse_query(request.queries[i], index_, bm25_); };
  });
  const std::vector<std::uint32_t> order = order_by_overlap(queries);
  std::vector<QueryResult> results(num_queries);
  constexpr std::size_t kTaskSize = kGroupsPerTask * kNumLanes;
  const std::size_t num_tasks = (num_queries + kTaskSize - 1) / kTaskSize;
  parallel_for(num_tasks, request.num_threads, [&] {
    return [&, lease = Lease(*this)](std::size_t task) {
      const std::size_t end = std::min((task + 1) * kTaskSize, num_queries);
      for (std::size_t at = task * kTaskSize; at < end; at += kNumLanes) {
        const std::span group(&order[at], std::min(kNumLanes, end - at));
        search_group(*lease, queries, group, request, results);
      }
    };
  });
  return results;
}

void Searcher::search_group(Worker& worker, std::span<const Query> queries,
                            std::span<const std::uint32_t> group, const SearchRequest& request,
                            std::vector<QueryResult>& results) const {
  std::array<Query, kNumLanes> lanes;
  std::array<std::uint32_t, kNumLanes> members{};
  std::size_t num_lanes = 0;
  for (const std::uint32_t i : group) {
    results[i].status = queries[i].status;
    if (queries[i].terms.empty()) continue;
    if (request.method == SearchMethod::kExhaustive || queries[i].terms.size() > kMaxStridedTerms) {
      results[i].hits = worker.exhaustive.search(queries[i], request.k, request.excluded);
    } else {
      members[num_lanes] = i;
      lanes[num_lanes++] = queries[i];
    }
  }
  if (num_lanes == 0) return;
  std::array<std::vector<Hit>, kNumLanes> hits;
  std::array<bool, kNumLanes> answered{};
  worker.strided.search(std::span(lanes).first(num_lanes), request.k, request.excluded, hits,
                        answered);
  for (std::size_t lane = 0; lane < num_lanes; ++lane) {
    const std::uint32_t i = members[lane];
    results[i].hits = answered[lane]
                          ? std::move(hits[lane])
                          : worker.exhaustive.search(queries[i], request.k, request.excluded);
  }
}

}  // namespace ralm

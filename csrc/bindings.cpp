// The only file that knows Python: checks arguments, releases the GIL, calls one function.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/analyzer.hpp"
#include "errors.hpp"
#include "index/builder.hpp"
#include "index/reader.hpp"
#include "search/searcher.hpp"

namespace py = pybind11;

namespace {

using ByteArray = py::array_t<std::uint8_t, py::array::c_style>;

// UTF-8 of Python strings, without copying; the strings must outlive the views. `what` and `first`
// name a string that holds a lone surrogate.
std::vector<std::string_view> utf8_views(const py::list& texts, const std::string& what,
                                         std::uint64_t first) {
  std::vector<std::string_view> views;
  views.reserve(texts.size());
  for (const py::handle text : texts) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (bytes == nullptr) {
      PyErr_Clear();
      throw ralm::InputFault(what + " " + std::to_string(first + views.size()) +
                             " is not text that UTF-8 can hold (a lone surrogate); repair it");
    }
    views.emplace_back(bytes, static_cast<std::size_t>(size));
  }
  return views;
}

py::list analyze(const py::str& text) {
  py::list terms;
  py::list texts;
  texts.append(text);
  ralm::TermStream stream(utf8_views(texts, "text", 0)[0]);
  for (auto term = stream.next(); !term.empty(); term = stream.next()) {
    terms.append(py::str(term.data(), term.size()));
  }
  return terms;
}

class Builder {
 public:
  explicit Builder(ralm::BuildOptions options) : builder_(std::move(options)) {}

  void add(const py::list& texts) {
    const auto views = utf8_views(texts, "passage row", num_added_);
    num_added_ += views.size();
    const py::gil_scoped_release release;
    builder_.add(views);
  }

  std::uint64_t num_done() const { return builder_.num_done(); }

  py::dict finish(const std::filesystem::path& path) {
    ralm::BuildStats stats;
    {
      const py::gil_scoped_release release;
      stats = builder_.finish(path);
    }
    py::dict result;
    result["num_passages"] = stats.num_passages;
    result["num_terms"] = stats.num_terms;
    result["num_postings"] = stats.num_postings;
    result["num_tokens"] = stats.num_tokens;
    result["num_runs"] = stats.num_runs;
    result["num_bytes"] = stats.num_bytes;
    return result;
  }

 private:
  ralm::IndexBuilder builder_;
  std::uint64_t num_added_ = 0;
};

class Index {
 public:
  Index(const std::filesystem::path& path, float k1, float b)
      : reader_(path), searcher_(reader_, {k1, b}) {}

  const ralm::IndexReader& reader() const noexcept { return reader_; }

  py::tuple search(const py::list& queries, std::size_t k, const std::optional<ByteArray>& excluded,
                   unsigned num_threads, bool exhaustive) const {
    ralm::SearchRequest request;
    const auto views = utf8_views(queries, "query", 0);
    request.queries = views;
    request.k = k;
    request.num_threads = num_threads;
    if (exhaustive) request.method = ralm::SearchMethod::kExhaustive;
    if (excluded) {
      request.excluded = {excluded->data(), static_cast<std::size_t>(excluded->size())};
      if (request.excluded.size() != reader_.num_passages()) {
        throw ralm::InputFault("the mask covers " + std::to_string(request.excluded.size()) +
                               " passages, the index " + std::to_string(reader_.num_passages()));
      }
    }
    std::vector<ralm::QueryResult> results;
    {
      const py::gil_scoped_release release;
      results = searcher_.search(request);
    }
    return to_arrays(results, k);
  }

  py::dict stats() const {
    const ralm::FileHeader& header = reader_.header();
    py::dict result;
    result["num_passages"] = header.num_passages;
    result["num_nonempty"] = header.num_nonempty;
    result["num_terms"] = header.num_terms;
    result["num_postings"] = header.num_postings;
    result["num_tokens"] = header.num_tokens;
    result["num_bytes"] = header.num_bytes;
    result["checksum"] = header.checksum;
    return result;
  }

  // (passages int64, frequencies int64) of one analysed term; empty where it does not occur.
  py::tuple postings(const std::string& term) const {
    std::vector<std::int64_t> passages;
    std::vector<std::int64_t> frequencies;
    if (const auto id = reader_.find(term)) {
      std::array<ralm::PassageId, ralm::kBlockSize> ids{};
      std::array<std::uint32_t, ralm::kBlockSize> counts{};
      ralm::PostingReader reader = reader_.postings(*id);
      while (const std::uint32_t count = reader.next(ids, counts)) {
        passages.insert(passages.end(), ids.begin(), ids.begin() + count);
        frequencies.insert(frequencies.end(), counts.begin(), counts.begin() + count);
      }
    }
    return py::make_tuple(
        py::array_t<std::int64_t>(static_cast<py::ssize_t>(passages.size()), passages.data()),
        py::array_t<std::int64_t>(static_cast<py::ssize_t>(frequencies.size()),
                                  frequencies.data()));
  }

  void verify() const {
    const py::gil_scoped_release release;
    reader_.verify();
  }

 private:
  static py::tuple to_arrays(const std::vector<ralm::QueryResult>& results, std::size_t k) {
    const auto num_queries = static_cast<py::ssize_t>(results.size());
    const auto width = static_cast<py::ssize_t>(k);
    py::array_t<std::int64_t> passages({num_queries, width});
    py::array_t<float> scores({num_queries, width});
    py::array_t<std::int32_t> counts(num_queries);
    py::array_t<std::int8_t> statuses(num_queries);
    std::fill_n(passages.mutable_data(), passages.size(), std::int64_t{-1});
    std::fill_n(scores.mutable_data(), scores.size(), 0.0F);
    for (py::ssize_t q = 0; q < num_queries; ++q) {
      const ralm::QueryResult& result = results[static_cast<std::size_t>(q)];
      counts.mutable_at(q) = static_cast<std::int32_t>(result.hits.size());
      statuses.mutable_at(q) = static_cast<std::int8_t>(result.status);
      for (std::size_t rank = 0; rank < result.hits.size(); ++rank) {
        const auto column = static_cast<py::ssize_t>(rank);
        passages.mutable_at(q, column) = result.hits[rank].passage;
        scores.mutable_at(q, column) = result.hits[rank].score;
      }
    }
    return py::make_tuple(passages, scores, counts, statuses);
  }

  ralm::IndexReader reader_;
  ralm::Searcher searcher_;
};

void raise_as(const char* name, const char* message) {
  const py::object type = py::module_::import("ralm_engine.errors").attr(name);
  PyErr_SetString(type.ptr(), message);
}

void translate(std::exception_ptr failure) {
  try {
    if (failure) std::rethrow_exception(failure);
  } catch (const ralm::InputFault& fault) {
    raise_as("InputError", fault.what());
  } catch (const ralm::RunFault& fault) {
    raise_as("RunError", fault.what());
  }
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native strided BM25: analyzer, index builder, index and search.";
  module.attr("FORMAT_VERSION") = ralm::kFormatVersion;
  module.attr("ANALYZER") = std::string(ralm::kAnalyzerName);
  module.attr("MAX_QUERY_TERMS") = ralm::kMaxQueryTerms;
  py::register_exception_translator(&translate);

  module.def("analyze", &analyze, py::arg("text"));
  module.def("encode_length", &ralm::encode_length, py::arg("length"));
  module.def("decode_length", &ralm::decode_length, py::arg("norm"));

  py::class_<Builder>(module, "Builder")
      .def(py::init([](std::filesystem::path work_directory, unsigned num_threads,
                       std::uint64_t memory_bytes) {
             return std::make_unique<Builder>(
                 ralm::BuildOptions{num_threads, memory_bytes, std::move(work_directory)});
           }),
           py::arg("work_directory"), py::kw_only(), py::arg("num_threads"),
           py::arg("memory_bytes"))
      .def("add", &Builder::add, py::arg("texts"))
      .def_property_readonly("num_done", &Builder::num_done)
      .def("finish", &Builder::finish, py::arg("path"));

  py::class_<Index>(module, "Index")
      .def(py::init<const std::filesystem::path&, float, float>(), py::arg("path"), py::kw_only(),
           py::arg("k1"), py::arg("b"))
      .def_property_readonly("num_passages",
                             [](const Index& index) { return index.reader().num_passages(); })
      .def_property_readonly("norms",
                             [](const Index& index) {
                               const auto norms = index.reader().norms();
                               return ByteArray(static_cast<py::ssize_t>(norms.size()),
                                                norms.data());
                             })
      .def("stats", &Index::stats)
      .def("postings", &Index::postings, py::arg("term"))
      .def("verify", &Index::verify)
      .def("search", &Index::search, py::arg("queries"), py::arg("k"), py::kw_only(),
           py::arg("excluded"), py::arg("num_threads"), py::arg("exhaustive") = false);
}

// A test runner in thirty lines: CHECK counts, main prints, the exit status tells.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ralm::test {

struct Case {
  std::string name;
  std::function<void()> body;
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(std::string name, std::function<void()> body) {
    cases().push_back({std::move(name), std::move(body)});
  }
};

inline void check(bool passed, const char* what, const char* file, int line) {
  if (passed) return;
  ++failures();
  std::printf("%s:%d: failed: %s\n", file, line, what);
}

}  // namespace ralm::test

#define CHECK(condition) ::ralm::test::check((condition), #condition, __FILE__, __LINE__)
#define TEST(name)                                                  \
  static void name();                                               \
  static const ::ralm::test::Register register_##name(#name, name); \
  static void name()

// The fields of one JSON object, taken out with their bounds. What is wrong is written to a list
// rather than returned, so that a user reads every mistake of a file at once; the caller ends with
// that list.
//
// A field that is null counts as absent, as it does for the Python that writes these files.
#ifndef WORKER_PROGRAM_FILES_JSON_FIELDS_H_
#define WORKER_PROGRAM_FILES_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace snug::program {

class JsonFields {
 public:
  struct Range {
    int64_t min = 0;
    int64_t max = 0;
  };
  struct RealRange {
    double min = 0.0;
    double max = 0.0;
  };

  // `prefix` goes before field names in messages: "" or "rope_parameters.". Both references outlive
  // this object.
  JsonFields(const nlohmann::json& object, std::string prefix, std::vector<std::string>* violations)
      : object_(object), prefix_(std::move(prefix)), violations_(*violations) {}

  // Null when the field is absent.
  const nlohmann::json* Find(const std::string& name) const;

  // The field is there and null, where that means something else than its absence.
  bool IsNull(const std::string& name) const;

  // Without a default the field must be there. After a mistake: 0.
  int64_t Integer(const std::string& name, Range range, std::optional<int64_t> absent = {});
  double Real(const std::string& name, RealRange range, std::optional<double> absent = {});
  bool Boolean(const std::string& name, bool absent);

  // The field is absent or has this one value. `accepted` null: it must be absent.
  void MustBe(const std::string& name, const nlohmann::json& accepted);

  const nlohmann::json& object() const { return object_; }
  std::vector<std::string>& violations() const { return violations_; }

  // "NAME is VALUE; accepted: ...", or "NAME is missing; accepted: ...".
  void Refuse(const std::string& name, const std::string& accepted);

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  std::vector<std::string>& violations_;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_JSON_FIELDS_H_

// Any protobuf message spelled in YAML: job files (JobSpec) and the daemon's configuration
// (DaemonConfig).
//
// The spelling: keys are the fields' names. A message or a map is a YAML mapping, a repeated field
// a sequence, or a scalar for one element (`target_modules: all-linear`). Enum values are written
// by name in any case (`method: lora`). Numbers may have exponents (1.0e-3). A null value means
// "not given". A job file may use the names of other tools (other_names.h). Nothing is guessed: an
// unknown key, a key that is there twice and a value of another type are errors, all of them
// reported at once, a line each, as `file:line: what is wrong` (YamlErrors in yaml_node.h).
#ifndef PROTO_SNUG_YAML_H_
#define PROTO_SNUG_YAML_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace snug {

// Sets in `message` what `text` says; `file` is its name in errors. InvalidArgument; then `message`
// is half filled.
absl::Status ParseYaml(absl::string_view text, absl::string_view file,
                       google::protobuf::Message* message);

// The line of `text`, from 1, where `field` is given, in whatever spelling: training.max_steps,
// datasets[1].path. Where it is not given, that of the innermost message of it that is; 0: none is.
int LineOfField(absl::string_view text, absl::string_view field,
                const google::protobuf::Descriptor& root);

// Sets one field from `path=value`, a command line's override of a file: training.max_steps=5. The
// value is YAML (lora.target_modules=[q_proj,v_proj]), except that a text field takes it as it
// stands, and replaces what was there; an empty one means "not given". What follows a map's name is
// its key: memory.stash.layers.*.mlp.*=recompute.
absl::Status ApplyOverride(absl::string_view assignment, google::protobuf::Message* message);

}  // namespace snug

#endif  // PROTO_SNUG_YAML_H_

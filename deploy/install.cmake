# What `cmake --install` and CPack put where. The folder can be moved: programs find LibTorch, the
# shim, the workers and snug-prepare by their own place.
#
#   bin/snug, bin/snugd, bin/snug-sim links to the programs
#   lib/snug/bin/                     snug, snugd, snug-confine, snug-inspect, snug-launch,
#                                     snug-shim, snug-sim, snug-worker
#   lib/snug/prepare/                 snug-prepare, and the Python packages that it needs beside it
#   lib/snug/torch/lib/               the libraries of LibTorch that workers load
#   share/{man,bash-completion,zsh,fish,doc}
#
# The Debian package adds units, a user and /etc/snug: deploy/debian/.
#
# The packages are those of the Python that the tree was configured with, and so is the version of
# python3 that the Debian package asks for.

include(GNUInstallDirs)
set(snug_home lib/snug)

set(programs snug snugd snug-confine snug-inspect snug-launch snug-shim snug-sim snug-worker)
install(TARGETS ${programs}
  RUNTIME DESTINATION ${snug_home}/bin)
set_target_properties(snug-worker PROPERTIES INSTALL_RPATH "$ORIGIN/../torch/lib")
install(CODE "
  file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin\")
  foreach(name snug snugd snug-sim)
    file(CREATE_LINK ../${snug_home}/bin/\${name}
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/\${name}\" SYMBOLIC)
  endforeach()")

install(DIRECTORY ${CMAKE_SOURCE_DIR}/worker/prepare/ DESTINATION ${snug_home}/prepare
  PATTERN __pycache__ EXCLUDE)
execute_process(
  COMMAND ${SNUG_PYTHON} -c
    "import sys, sysconfig; print('%s.%s' % sys.version_info[:2], sysconfig.get_path('platlib'))"
  OUTPUT_VARIABLE python_facts OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "^([0-9]+)\\.([0-9]+) (.*)$" python_facts "${python_facts}")
set(python_minor ${CMAKE_MATCH_2})
set(site_packages ${CMAKE_MATCH_3})
foreach(package tokenizers jinja2 markupsafe pyarrow yaml PIL pillow.libs)
  install(DIRECTORY ${site_packages}/${package} DESTINATION ${snug_home}/prepare
    PATTERN __pycache__ EXCLUDE
    PATTERN tests EXCLUDE
    PATTERN include EXCLUDE
    PATTERN src EXCLUDE)
endforeach()

# RPATH of libtorch_cpu.so names its own folder, so all of it lies in one.
set(torch_libraries ${SNUG_TORCH_ROOT}/lib/libtorch_cpu.so ${SNUG_TORCH_ROOT}/lib/libc10.so)
file(GLOB more ${SNUG_TORCH_ROOT}/lib/libgomp.so.1
  ${SNUG_TORCH_ROOT}/lib/libcudart.so.* ${SNUG_TORCH_ROOT}/lib/libcupti.so.*
  ${SNUG_TORCH_ROOT}/../nvidia/cu*/lib/libcudart.so.*
  ${SNUG_TORCH_ROOT}/../nvidia/cu*/lib/libcupti.so.*)
install(FILES ${torch_libraries} ${more} DESTINATION ${snug_home}/torch/lib)

# ---- completions and manual pages, of the commands' own help -------------------------------------
file(STRINGS ${CMAKE_SOURCE_DIR}/proto/snug/version.h version REGEX kVersion)
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" version "${version}")
set(about_snugd "runs fine-tuning jobs inside a memory budget")
set(about_snug-sim "what sharing devices would do for a trace of jobs")
set(shell_files)
foreach(kind bash zsh fish man)
  set(file ${CMAKE_BINARY_DIR}/shell/snug.${kind})
  add_custom_command(OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/shell
    COMMAND $<TARGET_FILE:snug> shell ${kind} > ${file}
    DEPENDS snug
    VERBATIM)
  list(APPEND shell_files ${file})
endforeach()
find_program(SNUG_HELP2MAN help2man REQUIRED)
foreach(page snugd.8 snug-sim.1)
  cmake_path(GET page STEM name)
  cmake_path(GET page EXTENSION section)
  string(SUBSTRING ${section} 1 -1 section)
  set(file ${CMAKE_BINARY_DIR}/shell/${page})
  add_custom_command(OUTPUT ${file}
    COMMAND ${SNUG_HELP2MAN} --no-info --section=${section} --name=${about_${name}}
      --version-string=${version} --output=${file} $<TARGET_FILE:${name}>
    DEPENDS ${name}
    VERBATIM)
  list(APPEND shell_files ${file})
endforeach()
add_custom_target(shell_files ALL DEPENDS ${shell_files})
# All that is installed, and no test.
add_custom_target(product DEPENDS ${programs} shell_files)
set(shell ${CMAKE_BINARY_DIR}/shell)
install(FILES ${shell}/snug.bash DESTINATION share/bash-completion/completions RENAME snug)
install(FILES ${shell}/snug.zsh DESTINATION share/zsh/site-functions RENAME _snug)
install(FILES ${shell}/snug.fish DESTINATION share/fish/vendor_completions.d)
install(FILES ${shell}/snug.man DESTINATION share/man/man1 RENAME snug.1)
install(FILES ${shell}/snug-sim.1 DESTINATION share/man/man1)
install(FILES ${shell}/snugd.8 DESTINATION share/man/man8)
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md
  DESTINATION share/doc/snug)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs ${CMAKE_SOURCE_DIR}/examples DESTINATION share/doc/snug)

# ---- packages ------------------------------------------------------------------------------------
set(CPACK_PACKAGE_VERSION ${version})
set(CPACK_GENERATOR "DEB;TGZ")
set(CPACK_PACKAGE_NAME snug)
set(CPACK_PACKAGE_CONTACT "The Snug authors <snug@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Fine-tuning jobs inside a memory budget, on shared machines")
set(CPACK_STRIP_FILES OFF)  # LibTorch's libraries and the wheels' are as their makers built them.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)  # 0.7 GB: xz takes minutes.
set(CPACK_DEBIAN_PACKAGE_SECTION science)
math(EXPR next_minor "${python_minor} + 1")
set(CPACK_DEBIAN_PACKAGE_DEPENDS
  "python3 (>= 3.${python_minor}), python3 (<< 3.${next_minor}), libdnnl2, ca-certificates, \
systemd-standalone-sysusers | systemd-sysusers, systemd-standalone-tmpfiles | systemd-tmpfiles")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${SNUG_TORCH_ROOT}/lib)
set(CPACK_SNUG_DEBIAN ${CMAKE_CURRENT_LIST_DIR}/debian)
set(CPACK_PRE_BUILD_SCRIPTS ${CPACK_SNUG_DEBIAN}/stage.cmake)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${CPACK_SNUG_DEBIAN}/conffiles ${CPACK_SNUG_DEBIAN}/postinst ${CPACK_SNUG_DEBIAN}/prerm
  ${CPACK_SNUG_DEBIAN}/postrm)
# `snug plot --png` draws by rsvg-convert.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS librsvg2-bin)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)

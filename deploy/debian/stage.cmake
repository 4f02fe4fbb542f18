# What the Debian package has beside the folder that can be moved: units, the user, its folders and
# the configuration, which name places of a system. Run by cpack where the package is put together.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
set(from ${CPACK_SNUG_DEBIAN})
set(root ${CPACK_TEMPORARY_DIRECTORY})
file(COPY ${from}/snugd.service ${from}/snug-worker.socket ${from}/snug-worker@.service
  ${from}/snug.slice DESTINATION ${root}/usr/lib/systemd/system)
file(MAKE_DIRECTORY ${root}/usr/lib/sysusers.d ${root}/usr/lib/tmpfiles.d)
file(COPY_FILE ${from}/sysusers.conf ${root}/usr/lib/sysusers.d/snug.conf)
file(COPY_FILE ${from}/tmpfiles.conf ${root}/usr/lib/tmpfiles.d/snug.conf)
file(COPY ${from}/snugd.yaml DESTINATION ${root}/etc/snug)

# Writes into OUT (.../share) the manual pages and completions of the tools in BIN, as they say themselves. Run as a
# script, when one of the TOOLS (a list of names) changes.
function(write_output file)
  get_filename_component(folder ${OUT}/${file} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${ARGN} OUTPUT_FILE ${OUT}/${file} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${OUT})                        # tools that are no more
foreach(tool ${TOOLS})
  write_output(man/man1/${tool}.1 ${BIN}/${tool} --help-man)
  write_output(bash-completion/completions/${tool} ${BIN}/${tool} --completions bash)
  write_output(fish/vendor_completions.d/${tool}.fish ${BIN}/${tool} --completions fish)
endforeach()
write_output(zsh/site-functions/_stepgraph ${BIN}/stepgraph completions zsh)
file(TOUCH ${STAMP})

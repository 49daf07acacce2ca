"""What the contracts of schema/ say of one job, said of thousands at once by compiled loops. Needs the extra ``columnar``.

jit                            functions as machine code
binary_views, build            byte strings as slices of one buffer: read, made
automaton                      what reads many texts by a table
json_check, tagged_json_check  whether many texts are JSON, or tagged JSON, of no unusual kind
siphash, jobnumbers            digests of values, numbers of jobs
jobtable                       accepted jobs, jobs and commands in columns
batch_prefilter                the contract of a family's Prefilter, for columns
"""

// Measurements over slides with Nextflow, a process per slide:
//
//   nextflow run measure.nf --slides 'slides/*.svs' --define measurements.txt --cohort my-cohort
//
// Each slide becomes maps by `sage measure`, on whatever executor the configuration names (local,
// Slurm, Kubernetes); the last process measures all of them and writes the variables.

params.slides = 'slides/*.svs'
params.define = 'measurements.txt'
params.cohort = '-'
params.out    = 'measured'

process MAPS {
    tag "${slide.baseName}"
    cpus 2
    memory '4 GB'
    errorStrategy 'ignore'   // a slide that fails is missing; the others go on

    input:
    path slide

    output:
    path "maps/${slide.simpleName}"

    script:
    """
    sage tools run slide_maps --input ${slide} --out made --workers 1
    mkdir -p maps && mv made/maps maps/${slide.simpleName}
    """
}

process VARIABLES {
    cpus 2
    memory '4 GB'
    publishDir params.out, mode: 'copy'

    input:
    path 'maps/*'
    path define

    output:
    path 'measured/*'

    script:
    """
    sage measure ${params.cohort} --maps maps --define ${define} --out measured --jobs ${task.cpus}
    """
}

workflow {
    made = MAPS(channel.fromPath(params.slides))
    VARIABLES(made.collect(), file(params.define))
}

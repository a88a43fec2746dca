// One process per slide, and one that joins them. `task.attempt` counts from 1; what a retry gets
// more of stands in nextflow.config.

process MAPS {
    tag "${slide.baseName}"

    input:
    path slide

    output:
    path "maps/${slide.baseName}"

    script:
    """
    sage tools run slide_maps --input "${slide}" --out made --workers 1 --memory ${task.memory.toMega()}
    mkdir -p maps && mv made/maps "maps/${slide.baseName}"
    """
}

process VARIABLES {
    stageInMode 'copy'   // SAGE follows no link to a folder
    publishDir params.out, mode: 'copy'

    input:
    path 'maps/*'
    path 'formulas.txt'
    path cohort, stageAs: 'cohort'
    val slides

    output:
    path 'measured/*'

    script:
    """
    sage slides measure ${cohort ? 'cohort' : '-'} --maps maps --define formulas.txt --out measured --workers ${task.cpus}
    for slide in ${slides.join(' ')}; do
        [ -d "maps/\$slide" ] || echo "\$slide"
    done > measured/missing_slides.txt
    """
}

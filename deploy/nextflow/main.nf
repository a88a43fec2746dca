// Measurements over slides with Nextflow, a process per slide:
//
//   nextflow run deploy/nextflow -profile slurm --slides 'slides/*.svs' \
//       --define measurements.txt --cohort my-cohort --out measured -resume
//
// Each slide becomes maps on whatever executor the profile names; the last process measures all of
// them and writes the variables. A slide that fails is tried again with more memory, then left out:
// it is missing for its patient, and measured/missing_slides.txt names it.

include { MAPS; VARIABLES } from './modules/sage'

// Names reach a shell: anything but letters, digits, dot, dash and underscore is refused.
def named(slide) {
    if (!(slide.name ==~ /[A-Za-z0-9_][A-Za-z0-9._-]*/)) {
        error "${slide}: rename it; a slide's name takes letters, digits, '.', '-' and '_'"
    }
    return slide
}

workflow {
    if (!params.slides || !params.define) {
        error "give --slides 'GLOB' and --define FILE"
    }
    slides = channel.fromPath(params.slides, checkIfExists: true).map { slide -> named(slide) }
    names = slides.map { slide -> slide.baseName }.collect().map { all ->
        if (all.toSet().size() < all.size()) {
            error "two slides have one name: rename one"
        }
        return all.sort()
    }
    cohort = params.cohort ? file(params.cohort, checkIfExists: true) : []
    VARIABLES(MAPS(slides).collect(), file(params.define, checkIfExists: true), cohort, names)
}
